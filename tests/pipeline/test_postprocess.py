"""What is tidied in the model's words, and what plain text keeps of Markdown."""

from __future__ import annotations

import pytest

from pagemill.pipeline.reading.postprocess import to_markdown, to_plain_text


@pytest.mark.parametrize(
    ("said", "markdown"),
    [
        ("# A  \r\nb\rc\n\n", "# A\nb\nc"),
        ("a\x0cb\x00c\td", "abc\td"),
        ("```markdown\n# A\n\nb\n```", "# A\n\nb"),
        ("```\ncode\n```\ntext", "```\ncode\n```\ntext"),
        (r"so \$x\$ and \$\frac{1}{2}\$", r"so $x$ and $\frac{1}{2}$"),
        (r"\$a_1 = 3\$", "$a_1 = 3$"),
        (r"from \$5 to \$10", r"from \$5 to \$10"),
        (r"\$5\$", r"\$5\$"),
        ("", ""),
    ],
)
def test_markdown_is_tidied(said: str, markdown: str) -> None:
    assert to_markdown(said) == markdown
    assert to_markdown(markdown) == markdown


@pytest.mark.parametrize(
    ("markdown", "plain"),
    [
        ("# Title\n## Part 2 ##\n#hashtag", "Title\nPart 2\n#hashtag"),
        ("**bold** __too__ *it* _it_ ***both***", "bold too it it both"),
        ("2 * 3 * 4, snake_case_name, 5*6*7, _, *", "2 * 3 * 4, snake_case_name, 5*6*7, _, *"),
        ("a < b and c > d, x<y>z", "a < b and c > d, x<y>z"),
        ("x<sup>2</sup> H<sub>2</sub>O <b>fat</b><br>next", "x2 H2O fat\nnext"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |\n| | x\\|y |", "a\tb\n1\t2\n\tx|y"),
        (
            "one<table><tr><th>A</th><td>b &amp; c<br/>d</td></tr><tr><td></td><td>2</td></tr></table>two",
            "one\nA\tb & c d\n\t2\ntwo",
        ),
        ("<table><tr><td>cut off", "cut off"),
        ("<table><td>1<td>2<tr><td>3</table>", "1\t2\n3"),
        ("> said he\n>> she", "said he\nshe"),
        ("- item\n* item\n1. first\n---", "- item\n* item\n1. first\n---"),
        ("```py\n*a* = _b_\n```", "*a* = _b_"),
        ("[text](http://a.b/c_d) ![alt](x.png) [note] (5)", "text alt [note] (5)"),
        (r"\*stars\* 5\% \$3", r"*stars* 5\% $3"),
        ("&amp; &lt;x&gt; AT&T", "& <x> AT&T"),
        ("a\n\n\n\nb <!-- hidden -->", "a\n\nb"),
        ("", ""),
    ],
)
def test_plain_text_keeps_words_and_drops_marks(markdown: str, plain: str) -> None:
    assert to_plain_text(markdown) == plain


@pytest.mark.parametrize(
    "text", ["*" * 20_000, "<table>" * 3000, "[" * 20_000, "`" * 20_001, "_a" * 10_000, "\\$" * 10_000, "<!--" * 5000]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    assert to_plain_text(to_markdown(text)) is not None
