"""A museum of broken defenses: networks that only look robust, what should catch each, and the key that opens it."""

from scaleproof.museum.annex import ANNEX
from scaleproof.museum.healthy import HEALTHY, Examined, examined
from scaleproof.museum.rooms import HELD_BACK, ROOMS, SETTING, Key, Room, room
from scaleproof.museum.tour import Visit, visit

__all__ = [
    "ANNEX",
    "HEALTHY",
    "HELD_BACK",
    "ROOMS",
    "SETTING",
    "Examined",
    "Key",
    "Room",
    "Visit",
    "examined",
    "room",
    "visit",
]
