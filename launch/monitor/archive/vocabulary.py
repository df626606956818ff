"""Decodes tokens with a folder's ``tokenizer.json``, without loading a tokenizer library."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from protocol.plain_text import sanitize_text


class TokenVocabulary:
    """The bytes of each token; an unknown token reads as its id in angle brackets."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._pieces = pieces

    def decode_each(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token; a character that spans several tokens is at the last of them."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        texts = [decoder.decode(self._bytes(token)) for token in ids]
        if texts:
            texts[-1] += decoder.decode(b"", final=True)
        return [sanitize_text(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of all tokens together."""
        return sanitize_text(b"".join(map(self._bytes, ids)).decode("utf-8", "replace"))

    def _bytes(self, token: int) -> bytes:
        return self._pieces.get(token) or f"⟨{token}⟩".encode()


EMPTY_VOCABULARY = TokenVocabulary({})


def read_vocabulary(folders: Sequence[Path]) -> TokenVocabulary:
    """Read the first readable tokenizer of these folders; :data:`EMPTY_VOCABULARY` if there is none."""
    for folder in folders:
        try:
            return TokenVocabulary(_pieces(orjson.loads((folder / "tokenizer.json").read_bytes())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return EMPTY_VOCABULARY


def _pieces(tokenizer: Mapping[str, Any]) -> dict[int, bytes]:
    """Return token id → bytes.  Raises KeyError, TypeError or AttributeError for anything but a tokenizer."""
    vocabulary = cast("dict[str, int]", tokenizer["model"]["vocab"])
    decode = _decode_byte_level if _is_byte_level(tokenizer.get("decoder")) else _decode_sentencepiece
    found = {index: decode(piece) for piece, index in vocabulary.items()}
    added = cast("list[dict[str, Any]]", tokenizer.get("added_tokens") or [])
    return found | {token["id"]: str(token["content"]).encode() for token in added}


def _is_byte_level(decoder: object) -> bool:
    """Return whether a decoder, or one of a sequence, is GPT-2's."""
    if not isinstance(decoder, dict):
        return False
    known = cast("dict[str, Any]", decoder)
    inner: list[object] = known.get("decoders") or []
    return known.get("type") == "ByteLevel" or any(map(_is_byte_level, inner))


def _decode_sentencepiece(piece: str) -> bytes:
    return piece.replace("▁", " ").encode()


def _decode_byte_level(piece: str) -> bytes:
    return bytes(_BYTE.get(char, 0x3F) for char in piece)


def _byte_of_char() -> dict[str, int]:
    """GPT-2's table: printable bytes are themselves, the others characters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE = _byte_of_char()
