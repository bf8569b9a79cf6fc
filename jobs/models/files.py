"""Which pair of GGUF files a job uses: the configured one, or the sample model that comes with Pagemill."""

from __future__ import annotations

from pathlib import Path

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.settings.config import ModelSection
from pagemill.jobs.settings.registry import ModelFiles, installed, known_model, models_folder

_JOBS = Path(__file__).resolve().parents[1]
SAMPLE_FOLDERS = (_JOBS / "sample_model", _JOBS.parent / "samples" / "model")  # in a wheel, in a source tree

REAL_MODEL_ADVICE = (
    "for real documents fetch a LightOnOCR model ('pagemill models list' names them) and say its model.name in a job file, "
    "or name two GGUF files there, model.text and model.mmproj"
)


def find_model(section: ModelSection) -> ModelFiles:
    """The files of a job.  Raises ConfigError when only one is named, or none and the sample model is not there."""
    if section.name:
        if section.text or section.mmproj:
            raise ConfigError(["model: expected either name or text and mmproj, found both; leave one out"])
        return installed(known_model(section.name), models_folder(section.folder))
    if section.text and section.mmproj:
        return ModelFiles(Path(section.text), Path(section.mmproj))
    if section.text or section.mmproj:
        missing = "mmproj" if section.text else "text"
        raise ConfigError(
            [f"model.{missing}: expected both model.text and model.mmproj or neither, found one; name the other too"]
        )
    for folder in SAMPLE_FOLDERS:
        texts, mmprojs = sorted(folder.glob("text*.gguf")), sorted(folder.glob("mmproj*.gguf"))
        if texts and mmprojs:
            return ModelFiles(texts[-1], mmprojs[-1], embedded=True)  # text-q8_0 rather than text-f16
    raise ConfigError([f"model: found no sample model beside this installation; {REAL_MODEL_ADVICE}"])
