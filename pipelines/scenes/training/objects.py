"""The one thing each picture is of, drawn around the foot of it at a random place and size."""

from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFilter

COLOURS = {
    "red": (214, 40, 40),
    "yellow": (250, 200, 30),
    "blue": (40, 90, 220),
    "white": (245, 245, 245),
    "purple": (140, 50, 170),
    "green": (40, 170, 80),
}
WINDOW_LIGHT = (255, 225, 120)
SNOW = (238, 243, 250)


@dataclass
class Place:
    """Where the object stands, how large it is, and the light on it: a little more than on the land."""

    scene: object
    x: float
    y: float
    size: float
    tint: tuple

    def lit(self, colour):
        return tuple(min(255, int(c * t)) for c, t in zip(colour, self.tint, strict=True))

    def polygon(self, points, colour):
        self.scene.canvas.polygon([self._at(*point) for point in points], fill=colour)

    def box(self, left, top, right, bottom, colour):
        self.scene.canvas.rectangle([*self._at(left, top), *self._at(right, bottom)], fill=colour)

    def oval(self, left, top, right, bottom, colour):
        self.scene.canvas.ellipse([*self._at(left, top), *self._at(right, bottom)], fill=colour)

    def line(self, start, end, colour, width):
        self.scene.canvas.line([self._at(*start), self._at(*end)], fill=colour, width=width)

    def beam(self, end, spread, colour):
        """Let soft light fall from the top of a lighthouse."""
        mask = Image.new("L", self.scene.image.size)
        cone = [self._at(0, -55), self._at(end, -60 - spread), self._at(end, -60 + spread)]
        ImageDraw.Draw(mask).polygon(cone, fill=80)
        self.scene.image.paste(colour, mask=mask.filter(ImageFilter.GaussianBlur(2)))

    def _at(self, right, down):
        return self.x + right * self.size, self.y + down * self.size


def draw_object(scene):
    """Draw what the words say, in the colour they say."""
    random, thing, time = scene.random, scene.words["object"], scene.words["time"]
    x, y = random.randint(34, 94), random.randint(52, 66) if thing == "balloon" else random.randint(98, 110)
    tint = tuple(min(1, channel * 1.25 + 0.08) for channel in scene.tint)
    place = Place(scene, x, y, random.uniform(0.9, 1.2), tint)
    if scene.words["land"] == "sea" and thing not in ("boat", "balloon"):  # an island to stand on
        place.oval(-32, -6, 32, 12, scene.lit(SNOW if scene.is_snowy else (150, 140, 90)))
    colour = place.lit(COLOURS[scene.words["colour"]])
    window = WINDOW_LIGHT if time in ("night", "sunset") else scene.lit((60, 70, 95))
    DRAWERS[thing](place, colour, window)


def draw_house(place, colour, window):
    snow = place.scene.lit(SNOW) if place.scene.is_snowy else darker(colour, 0.6)
    place.box(-18, -20, 18, 2, colour)
    place.polygon([(-23, -20), (0, -40), (23, -20)], snow)
    place.box(-4, -11, 4, 2, place.lit((70, 45, 30)))
    place.box(-14, -15, -8, -8, window)
    place.box(8, -15, 14, -8, window)


def draw_tree(place, colour, _window):
    place.box(-3, -16, 3, 4, place.lit((95, 62, 38)))
    for foot, width in ((-14, 20), (-28, 16), (-41, 11)):
        place.polygon([(-width, foot), (0, foot - 22), (width, foot)], colour)
        if place.scene.is_snowy:
            snow = [(-width * 0.5, foot - 11), (0, foot - 22), (width * 0.5, foot - 11)]
            place.polygon(snow, place.scene.lit(SNOW))


def draw_boat(place, colour, _window):
    place.polygon([(-24, -8), (24, -8), (16, 4), (-16, 4)], place.lit((110, 70, 40)))
    place.line((0, -8), (0, -46), place.lit((60, 40, 25)), 3)
    place.polygon([(2, -46), (2, -11), (22, -11)], colour)
    place.polygon([(-2, -40), (-2, -11), (-16, -11)], darker(colour, 0.8))


def draw_balloon(place, colour, _window):
    for side in (-1, 1):
        place.line((12 * side, 14), (5 * side, 30), darker(colour, 0.6), 2)
    place.oval(-20, -20, 20, 20, colour)
    place.polygon([(-17, 10), (17, 10), (5, 25), (-5, 25)], colour)
    place.oval(-8, -20, 8, 20, tuple(min(255, int(channel * 0.7 + 45)) for channel in colour))
    place.box(-6, 29, 6, 37, place.lit((110, 70, 40)))


def draw_castle(place, colour, window):
    place.box(-20, -24, 20, 3, place.lit((150, 148, 150)))
    for middle in (-22, 22):
        place.box(middle - 7, -36, middle + 7, 3, place.lit((132, 130, 135)))
        place.polygon([(middle - 9, -36), (middle, -54), (middle + 9, -36)], colour)
    place.box(-6, -12, 6, 3, place.lit((60, 45, 40)))
    place.box(-12, -20, -8, -14, window)
    place.box(8, -20, 12, -14, window)
    place.line((0, -24), (0, -46), darker(colour, 0.6), 2)
    place.polygon([(1, -46), (14, -41), (1, -36)], colour)


def draw_lighthouse(place, colour, _window):
    for floor in range(4):  # narrower with each, and white in turn
        below, above = 11 - floor * 1.3, 11 - (floor + 1) * 1.3
        foot, top = -floor * 13 + 2, -(floor + 1) * 13 + 2
        corners = [(-below, foot), (below, foot), (above, top), (-above, top)]
        place.polygon(corners, place.lit((245, 245, 245)) if floor % 2 else colour)
    is_dark = place.scene.words["time"] in ("night", "sunset")
    place.box(-5, -60, 5, -50, (255, 235, 130) if is_dark else place.scene.lit((230, 220, 150)))
    place.polygon([(-8, -60), (0, -70), (8, -60)], darker(colour, 0.6))
    if place.scene.words["time"] == "night":
        place.beam(place.scene.random.choice([-90, 90]), 15, (255, 240, 170))


def darker(colour, part):
    return tuple(int(channel * part) for channel in colour)


DRAWERS = {
    "house": draw_house,
    "tree": draw_tree,
    "boat": draw_boat,
    "balloon": draw_balloon,
    "castle": draw_castle,
    "lighthouse": draw_lighthouse,
}
