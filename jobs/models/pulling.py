"""Model files from the Hugging Face hub: looked up, downloaded with resume, and believed only when their checksum is right.

Speaks to the hub that HF_ENDPOINT names; HF_HUB_OFFLINE and HF_TOKEN mean what they mean to huggingface_hub.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from pagemill.decoder import ModelError
from pagemill.jobs.errors import InputError, OutputError
from pagemill.jobs.settings.registry import FileFacts, KnownModel, ModelFiles, how_to_get, write_manifest
from pagemill.pipeline import hash_content

PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to fetch.  sha256: what it must have, None where neither the registry nor the hub says."""

    name: str
    size_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Choice:
    """Files that the user names instead of the registry's; names of the repository, * and ? allowed."""

    text: str | None = None
    mmproj: str | None = None


def pull(
    model: KnownModel, folder: Path, tell: Callable[[str], None], choice: Choice = Choice(), endpoint: str | None = None
) -> ModelFiles:
    """Fetches what is missing into the model's folder.  Raises InputError, ModelError, OutputError.

    Whole files that are there already are checked and kept; an interrupted download goes on where it stopped.
    """
    if not model.runs:
        raise ModelError(f"{model.name}: it does not run here: {model.note}")
    if model.gguf is None:
        raise InputError(f"{model.name}: {how_to_get(model, folder)}")
    commit, files = _look_up(model, folder, endpoint)
    wanted = {
        "text": _choose(model, "text", model.text, choice.text, files),
        "mmproj": _choose(model, "mmproj", model.mmproj, choice.mmproj, files),
    }
    place = folder / model.name
    for file in wanted.values():
        _fetch(model, commit, file, folder, tell, endpoint)
    record = {
        "repository": model.gguf,
        "revision": commit,
        "files": {kind: {"name": file.name, "sha256": hash_content(place / file.name)} for kind, file in wanted.items()},
    }
    try:
        write_manifest(place, record)
    except OSError as error:
        raise _cannot_write(place, error) from error
    return ModelFiles(place / wanted["text"].name, place / wanted["mmproj"].name)


def _look_up(model: KnownModel, folder: Path, endpoint: str | None) -> tuple[str, dict[str, Wanted]]:
    """The commit that the repository's revision is, and its files."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    assert model.gguf is not None
    try:
        info = HfApi(endpoint=endpoint).model_info(model.gguf, revision=model.revision, files_metadata=True)
    except HfHubHTTPError as error:
        problem = f"the hub does not give the repository {model.gguf} ({_first_line(error)})"
        raise InputError(f"{model.name}: {problem}; {how_to_get(model, folder)}") from error
    except (OSError, _connection_error()) as error:
        raise _no_network(model, folder, error) from error
    files = {
        sibling.rfilename: Wanted(sibling.rfilename, sibling.size, sibling.lfs.sha256 if sibling.lfs else None)
        for sibling in info.siblings or ()
        if ".." not in PurePosixPath(sibling.rfilename).parts and not sibling.rfilename.startswith("/")
    }
    return info.sha or model.revision or "main", files


def _choose(model: KnownModel, kind: str, facts: FileFacts, named: str | None, files: Mapping[str, Wanted]) -> Wanted:
    """The one file that the first fitting pattern names."""
    patterns: Sequence[str] = (named,) if named else facts.file
    candidates = sorted(name for name in files if name.endswith(".gguf") and ("mmproj" in name.lower()) == (kind == "mmproj"))
    for pattern in patterns:
        fitting = [name for name in candidates if fnmatchcase(name, pattern)]
        if len(fitting) == 1:
            found = files[fitting[0]]
            is_registered = named is None and facts.sha256 is not None
            return Wanted(found.name, found.size_bytes, facts.sha256 if is_registered else found.sha256)
        if fitting:
            candidates = fitting
            break
    found_names = ", ".join(candidates) or "none"
    raise InputError(
        f"{model.name}: expected one {kind} file {' or '.join(patterns)} in {model.gguf}, found {found_names}; "
        f"name one with --{kind}"
    )


def _fetch(
    model: KnownModel, commit: str, file: Wanted, folder: Path, tell: Callable[[str], None], endpoint: str | None
) -> None:
    """Downloads a file unless it is there; it gets its name only when it is whole and right."""
    path = folder / model.name / file.name
    if path.is_file() and _has_right_checksum(path, file):
        tell(f"{path}: is there already")
        return
    tell(f"{file.name}: {_size(file.size_bytes)} from {model.gguf}")
    part = path.with_name(f".{path.name}.{commit[:12]}{PART_SUFFIX}")
    _download(model, commit, file, part, folder, endpoint)
    if not _has_right_checksum(part, file):
        found = hash_content(part)
        part.unlink()
        path.unlink(missing_ok=True)
        raise ModelError(
            f"{path}: expected sha256 {file.sha256}, found {found}; the file is deleted; pull it again, and if it happens "
            "again do not use the repository"
        )
    part.replace(path)
    if file.sha256 is None:
        tell(f"{path}: there is no checksum to compare with")


def _download(model: KnownModel, commit: str, file: Wanted, part: Path, folder: Path, endpoint: str | None) -> None:
    """Appends to ``part`` what is missing in it; the hub's own cache would begin anew after an interruption."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined] # public, not typed as such

    assert model.gguf is not None
    url = hf_hub_url(model.gguf, file.name, revision=commit, endpoint=endpoint)
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as stream:
            if file.size_bytes is not None and stream.tell() > file.size_bytes:
                stream.truncate(0)
            start = os.fstat(stream.fileno()).st_size
            http_get(url, stream, resume_size=start, headers=build_hf_headers(), expected_size=file.size_bytes)
            stream.flush()
            os.fsync(stream.fileno())
    except HfHubHTTPError as error:
        raise InputError(f"{model.name}: the hub does not give {file.name} ({_first_line(error)})") from error
    except OSError as error:
        if error.errno is not None and not isinstance(error, ConnectionError | TimeoutError):
            raise _cannot_write(part.parent, error) from error
        raise _no_network(model, folder, error) from error
    except _connection_error() as error:
        raise _no_network(model, folder, error) from error


def _has_right_checksum(path: Path, file: Wanted) -> bool:
    if file.sha256 is not None:
        return hash_content(path) == file.sha256
    return file.size_bytes is None or path.stat().st_size == file.size_bytes


def _connection_error() -> type[Exception]:
    """What the hub's HTTP library raises when there is no connection: the kind that the hub's own error is one of."""
    from huggingface_hub.errors import HfHubHTTPError

    kind = HfHubHTTPError.__bases__[0]
    assert issubclass(kind, Exception)
    return kind


def _no_network(model: KnownModel, folder: Path, error: Exception) -> InputError:
    return InputError(f"{model.name}: the hub cannot be reached ({_first_line(error)}); {how_to_get(model, folder)}")


def _cannot_write(place: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{place}: cannot be written ({error.strerror or error}); free the disk, or choose another with --folder"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _size(size_bytes: int | None) -> str:
    return "size not known" if size_bytes is None else f"{size_bytes / 1e6:.0f} MB"
