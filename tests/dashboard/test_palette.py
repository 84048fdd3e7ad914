"""Colours that can be seen, and told apart by everybody."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from tailscope.conventions import STAGES
from tailscope_dashboard import palette

Colour = NDArray[np.float64]

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
EYES: dict[str, Colour] = {
    "normal": np.eye(3),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour: str) -> Colour:
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def oklab(colour: str, eye: str) -> Colour:
    seen = np.clip(EYES[eye] @ linear(colour), 0, 1)
    return np.asarray(LAB @ np.cbrt(LMS @ seen), dtype=np.float64)


def test_every_stage_has_a_colour_of_its_own() -> None:
    assert set(palette.STAGE) == set(STAGES)
    assert len(set(palette.STAGE.values())) == len(STAGES)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("background", [palette.LIGHT_BACKGROUND, palette.DARK_BACKGROUND])
def test_stage_stands_out_from_both_backgrounds(stage: str, background: str) -> None:
    assert contrast(palette.STAGE[stage], background) >= 2.9


@pytest.mark.parametrize("eye", EYES)
def test_stages_can_be_told_apart(eye: str) -> None:
    distances = {
        pair: float(np.linalg.norm(oklab(palette.STAGE[pair[0]], eye) - oklab(palette.STAGE[pair[1]], eye)))
        for pair in combinations(palette.STAGE, 2)
    }

    assert min(distances.values()) >= 0.085, min(distances, key=lambda pair: distances[pair])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_more_requests_are_further_from_the_background(theme: str) -> None:
    background = palette.DARK_BACKGROUND if theme == "dark" else palette.LIGHT_BACKGROUND

    contrasts = [contrast(colour, background) for colour in palette.density(theme)]

    assert contrasts == sorted(contrasts)


def test_both_themes_set_the_same_options() -> None:
    options = palette.theme_options()
    light = {name.removeprefix("theme.light.") for name in options if name.startswith("theme.light.")}
    dark = {name.removeprefix("theme.dark.") for name in options if name.startswith("theme.dark.")}

    assert light == dark
