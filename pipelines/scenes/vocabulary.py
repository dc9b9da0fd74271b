"""The words the model was trained on, and how a free prompt is read as a set of them.

Promises: any text has an answer; words that mean nothing to the model are reported, in order, each once.
"""

import re
from itertools import zip_longest

# One scene has at most one word of each group; a group that is not named is left to chance.
GROUPS = {
    "time": ("dawn", "day", "sunset", "night"),
    "land": ("mountains", "hills", "desert", "sea"),
    "weather": ("clear", "snowy"),
    "object": ("house", "tree", "boat", "balloon", "castle", "lighthouse"),
    "colour": ("red", "yellow", "blue", "white", "purple", "green"),
}

# The position of a word is its place in the input vector of the denoiser: this order belongs to the weights.
WORDS = tuple(word for words in GROUPS.values() for word in words)

_GROUP_OF = {word: group for group, words in GROUPS.items() for word in words}

_SYNONYMS = {
    "dawn": ("morning", "sunrise"),
    "day": ("daytime", "noon", "sunny"),
    "sunset": ("dusk", "evening"),
    "night": ("midnight", "moon", "moonlit", "dark", "star"),
    "mountains": ("mountain", "alp", "peak"),
    "hills": ("hill", "meadow", "field"),
    "desert": ("dune", "sand", "sandy"),
    "sea": ("ocean", "lake", "water"),
    "snowy": ("snow", "winter"),
    "house": ("cottage", "cabin", "home"),
    "tree": ("forest",),
    "boat": ("ship", "sailboat", "sail"),
    "balloon": ("airship",),
    "castle": ("fortress",),
    "lighthouse": ("tower",),
    "red": ("crimson", "scarlet"),
    "yellow": ("golden", "orange"),
    "purple": ("violet", "pink"),
}
_MEANING = {synonym: word for word, synonyms in _SYNONYMS.items() for synonym in synonyms}

_FILLERS = frozenset(
    {"a", "an", "and", "at", "beside", "by", "in", "near", "of", "on", "over", "the", "to", "under", "with"}
    | {"landscape", "picture", "scene", "sky"}
)


def read_prompt(prompt):
    """Return (known, unknown): the scene's words in the order of GROUPS, and the words without a meaning.

    >>> read_prompt("A red lighthouse by the sea at sunset, with dragons")
    (('sunset', 'sea', 'lighthouse', 'red'), ('dragons',))
    """
    texts = re.findall(r"[^\W\d_]+", prompt.casefold())
    words = [_known_form(text) for text in texts]
    scene = {}
    for word, following in zip_longest(words, words[1:]):
        group = _GROUP_OF.get(word)
        # "A red house on green hills" is about a red house: a later colour counts only in front of an object.
        if group == "colour" and group in scene and _GROUP_OF.get(following) != "object":
            continue
        if group is not None:
            scene[group] = word
    unknown = [text for text, word in zip(texts, words, strict=True) if not _means_something(word)]
    return tuple(scene[group] for group in GROUPS if group in scene), tuple(dict.fromkeys(unknown))


def _known_form(text):
    """Return the word of the vocabulary that `text` stands for, plural forms included, else `text`."""
    for form in (text, text.removesuffix("s")):
        if form in _GROUP_OF:
            return form
        if form in _MEANING:
            return _MEANING[form]
    return text


def _means_something(word):
    return word in _GROUP_OF or word in _FILLERS
