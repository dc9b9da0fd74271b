"""The pictures the model learns from, drawn by this program: no outside data, no question of a licence.

Drawn at 128 x 128 and reduced to 64 x 64. Promises: the same words and the same state of the generator draw the same
picture; a group that is not named is drawn at random, and the words returned say what it became.
"""

import math
from dataclasses import dataclass

from PIL import Image, ImageDraw
from training.objects import draw_object
from vocabulary import GROUPS

SIDE = 128
PICTURE_SIDE = 64
HORIZON = 84
NIGHT_SKY_END = 70  # below it no star is drawn
WHITE = (238, 243, 250)

SKIES = {
    "dawn": ((150, 160, 210), (255, 205, 190)),
    "day": ((70, 150, 235), (190, 225, 250)),
    "sunset": ((95, 50, 110), (255, 140, 60)),
    "night": ((8, 10, 35), (40, 48, 95)),
}
TINTS = {"dawn": (1.0, 0.88, 0.88), "day": (1, 1, 1), "sunset": (0.88, 0.62, 0.55), "night": (0.36, 0.40, 0.58)}
SUNS = {  # colour, radius, lowest and highest place
    "dawn": ((255, 235, 190), 11, 48, 62),
    "day": ((255, 240, 120), 10, 12, 32),
    "sunset": ((255, 215, 90), 15, 56, 72),
}
HILLS = ((120, 170, 90), (95, 155, 70), (70, 130, 55))
SNOWY_HILLS = ((205, 215, 230), (222, 230, 240), WHITE)
DUNES = ((240, 205, 140), (228, 182, 110), (208, 155, 85))
MOUNTAINS = ((105, 115, 140), (75, 88, 105))
SEA = ((60, 130, 195), (25, 75, 140))


@dataclass
class Scene:
    """What is drawn, with what, and in which light."""

    image: Image.Image
    canvas: ImageDraw.ImageDraw
    random: object  # random.Random
    words: dict
    tint: tuple

    @property
    def is_snowy(self):
        return self.words["weather"] == "snowy"

    def lit(self, colour, spread=0):
        """Return a colour as it looks in this light, each channel up to `spread` brighter or darker."""
        noise = [self.random.uniform(-spread, spread) if spread else 0 for _ in colour]
        return tuple(max(0, min(255, int(c * t + n))) for c, t, n in zip(colour, self.tint, noise, strict=True))


def render(words, random):
    """Return (picture, all words) for {group: word}; what is missing is chosen by `random`, a random.Random."""
    words = {group: words.get(group) or random.choice(choices) for group, choices in GROUPS.items()}
    image = Image.new("RGB", (SIDE, SIDE))
    scene = Scene(image, ImageDraw.Draw(image), random, words, TINTS[words["time"]])
    draw_sky(scene)
    horizon = random.randint(78, 90)
    draw_land = {"mountains": draw_mountains, "hills": draw_hills, "desert": draw_desert, "sea": draw_sea}
    draw_land[words["land"]](scene, horizon)
    draw_object(scene)
    if scene.is_snowy and random.random() < 0.8:
        draw_snowfall(scene)
    return image.resize((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.BOX), words


def draw_sky(scene):
    time, random = scene.words["time"], scene.random
    top, bottom = SKIES[time]
    for y in range(SIDE):
        scene.canvas.line([(0, y), (SIDE, y)], fill=between(top, bottom, min(1, y / HORIZON) ** 1.2))
    if time == "night":
        for _ in range(random.randint(18, 34)):
            square(scene, random.randrange(SIDE), random.randrange(NIGHT_SKY_END), random.choice([1, 1, 2]))
        draw_moon(scene, top, bottom)
        return
    colour, radius, highest, lowest = SUNS[time]
    disc(scene, random.randint(16, 110), random.randint(highest, lowest), radius, colour)
    if time != "sunset":
        for _ in range(random.randint(0, 3)):
            draw_cloud(scene, random.randint(0, SIDE), random.randint(12, 50))


def draw_moon(scene, top, bottom):
    random = scene.random
    x, y, radius = random.randint(16, 110), random.randint(12, 34), random.randint(8, 11)
    disc(scene, x, y, radius, (240, 240, 215))
    if random.random() < 0.5:  # a crescent
        disc(scene, x + random.choice([-6, 6]), y - 2, radius, between(top, bottom, 0.2))


def draw_cloud(scene, x, y):
    random, colour = scene.random, scene.lit((250, 250, 252))
    for _ in range(4):
        width, height = random.randint(8, 15), random.randint(4, 7)
        left, up = x + random.randint(-12, 12), y + random.randint(-3, 3)
        scene.canvas.ellipse([left - width, up - height, left + width, up + height], fill=colour)


def draw_mountains(scene, horizon):
    random = scene.random
    for layer, rock in enumerate(MOUNTAINS):
        base = horizon + 8 + layer * 8
        for _ in range(random.randint(2, 3)):
            x, height = random.randint(-5, SIDE + 5), random.randint(34, 62) - layer * 14
            draw_mountain(scene, x, base, height, height * random.uniform(0.7, 1.0), scene.lit(rock))
    ground(scene, ridge(random, horizon + 10, 4, 0), scene.lit(WHITE if scene.is_snowy else (80, 135, 70), 6))


def draw_mountain(scene, x, base, height, width, rock):
    top = base - height
    scene.canvas.polygon([(x, top), (x - width, base + 6), (x + width, base + 6)], fill=rock)
    cap = 0.62 if scene.is_snowy else 0.28
    side, down = width * cap, (height + 6) * cap
    zigzag = [(0, 0), (-side, down), (-side * 0.3, down * 0.8), (side * 0.25, down * 1.05), (side, down)]
    scene.canvas.polygon([(x + right, top + below) for right, below in zigzag], fill=scene.lit(WHITE))


def draw_hills(scene, horizon):
    for layer, colour in enumerate(SNOWY_HILLS if scene.is_snowy else HILLS):
        ys = ridge(scene.random, horizon - 4 + layer * 10, 11 - 2 * layer, 0)
        ground(scene, ys, scene.lit(colour, 5))


def draw_desert(scene, horizon):
    for layer, sand in enumerate(DUNES):
        ys = ridge(scene.random, horizon + layer * 11, 8, -0.4)
        ground(scene, ys, scene.lit(between(sand, WHITE, 0.65) if scene.is_snowy else sand, 5))


def draw_sea(scene, horizon):
    random, canvas = scene.random, scene.canvas
    for y in range(horizon, SIDE):
        canvas.line([(0, y), (SIDE, y)], fill=scene.lit(between(*SEA, (y - horizon) / (SIDE - horizon))))
    for _ in range(random.randint(8, 14)):
        x, y, width = random.randrange(SIDE), random.randrange(horizon + 3, SIDE), random.randint(6, 18)
        canvas.line([(x, y), (x + width, y)], fill=scene.lit((150, 200, 235)), width=1)
    for _ in range(random.randint(3, 5) if scene.is_snowy else 0):
        x, y, width = random.randrange(SIDE), random.randrange(horizon + 2, SIDE), random.randint(8, 20)
        floe = [(-1, 0), (-0.3, -0.5), (0.4, -0.35), (1, 0)]
        canvas.polygon([(x + width * right, y + width * down) for right, down in floe], fill=scene.lit((228, 240, 250)))


def draw_snowfall(scene):
    colour = tuple(min(255, int(c * min(1, t + 0.15))) for c, t in zip(WHITE, scene.tint, strict=True))
    for _ in range(26):
        square(scene, scene.random.randrange(SIDE), scene.random.randrange(SIDE), 2, colour)


def ridge(random, y, amplitude, roughness):
    """Return a height for each x: four waves of random phase, each smaller than the one before."""
    phases = [random.uniform(0, 6.28) for _ in range(4)]
    waves = [random.uniform(0.6, 1.4) * (number + 1) * 0.7 for number in range(4)]
    return [
        y + amplitude / 2 * sum(
            math.sin(x / SIDE * 6.28 * wave + phase) / (number + 1) ** (1.6 - roughness)
            for number, (wave, phase) in enumerate(zip(waves, phases, strict=True))
        )
        for x in range(SIDE + 1)
    ]  # fmt: skip


def ground(scene, ys, colour):
    scene.canvas.polygon([*enumerate(ys), (SIDE, SIDE + 2), (0, SIDE + 2)], fill=colour)


def disc(scene, x, y, radius, colour):
    scene.canvas.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)


def square(scene, x, y, side, colour=(255, 255, 230)):
    scene.canvas.rectangle([x, y, x + side, y + side], fill=colour)


def between(first, second, part):
    """Return the colour that is `part` of the way from the first to the second."""
    return tuple(int(a + (b - a) * part) for a, b in zip(first, second, strict=True))
