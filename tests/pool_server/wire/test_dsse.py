"""Envelopes against the vectors of the DSSE project, and keys against RFC 8032.

The vectors are those of `testvectors/vectors.json` of secure-systems-lab/dsse; their keys are the
first two of RFC 8032, section 7.1, so that every signature can be made again.
"""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.wire.signatures.keys import Envelope, EnvelopeSignature, PrivateKey, pae, seal

KEY_A = PrivateKey.from_seed(
    bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
)
KEY_B = PrivateKey.from_seed(
    bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
)
IN_TOTO = "application/vnd.in-toto+json"
STATEMENT = "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEifQ=="
SIGNED_BY_A = (
    "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
)
SIGNED_BY_B = (
    "c1+67/aT0yqEpwx8PsVY3MLHsj9D0CZ014/Fv/QlG59P+9CobUZ7xECJ/V3USG0Ob9CiE5LjReEZUzNF2l7eBw=="
)


def test_the_keys_are_those_of_rfc_8032() -> None:
    assert KEY_A.public.raw.hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert KEY_B.public.raw.hex() == (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    )
    # TEST 1 of section 7.1: the empty message.
    signature = KEY_A.sign(b"")
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac"
        "c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert KEY_A.public.verifies(signature, b"")
    assert not KEY_B.public.verifies(signature, b"")


@pytest.mark.parametrize(
    ("payload_type", "body", "expected"),
    [
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        (IN_TOTO, b"", b"DSSEv1 28 application/vnd.in-toto+json 0 "),
        # Lengths are of bytes: 29 here, of 28 characters.
        (
            "application/vnd.ex\u00e4mple+json",
            b"{}",
            b"DSSEv1 29 application/vnd.ex\xc3\xa4mple+json 2 {}",
        ),
    ],
)
def test_what_is_signed(payload_type: str, body: bytes, expected: bytes) -> None:
    assert pae(payload_type, body) == expected


@pytest.mark.parametrize(
    ("payload_type", "payload", "signature", "accepted"),
    [
        pytest.param(IN_TOTO, STATEMENT, SIGNED_BY_A, True, id="single-signature"),
        pytest.param(
            IN_TOTO,
            "-_-_Pj8=",
            "P-_KHICeR7tI6S_YyejJTRtrXhcQyQ2LYPaL8h90KjC9qN8HU_svOQ6TuDOT1HIrsGW886DbWNWcCmX5twLrAw==",
            True,
            id="url-safe-base64",
        ),
        pytest.param(
            "application/vnd.example.other+json",
            STATEMENT,
            SIGNED_BY_A,
            False,
            id="payload-type-swapped",
        ),
        pytest.param(
            "application/vnd.ex\u00e4mple+json",
            STATEMENT,
            "xmSk/ug66ysT7ayhkCIjhAq42zgZXSsEWuzUaNL7w2eGAdF/NU6/fRXPtmfN+5DNSAs5/i2lUnHjbbjPsu0tAw==",
            True,
            id="non-ascii-payload-type",
        ),
        pytest.param(
            IN_TOTO,
            "",
            "gSggCAaTLTYyRH6FIDBem6meyIynsYy8RTHVzwx9tnTb7Bg/1jMWnuVgI/gffqmbsC2VX5/jHfkkDqsj7CDbDg==",
            True,
            id="empty-payload",
        ),
        pytest.param(IN_TOTO, STATEMENT, SIGNED_BY_B, False, id="another-key"),
    ],
)
def test_the_vectors_of_the_standard(
    payload_type: str, payload: str, signature: str, accepted: bool
) -> None:
    envelope = Envelope.model_validate(
        {
            "payload": payload,
            "payloadType": payload_type,
            "signatures": [{"sig": signature, "keyid": "A"}],
        }
    )
    assert envelope.signed_by([KEY_A.public]) == (KEY_A.public if accepted else None)


@given(body=st.binary(max_size=200), payload_type=st.text(max_size=20), bit=st.integers(0, 10_000))
def test_any_changed_bit_spoils_a_signature(body: bytes, payload_type: str, bit: int) -> None:
    if not payload_type.isprintable():
        payload_type = "x"
    envelope = seal(payload_type, body, KEY_A)
    assert envelope.body() == body
    assert Envelope.model_validate_json(envelope.model_dump_json()) == envelope
    assert envelope.signed_by([KEY_B.public, KEY_A.public]) == KEY_A.public
    for name, content in (("payload", body), ("sig", base64.b64decode(envelope.signatures[0].sig))):
        if not content:
            continue
        changed = bytearray(content)
        changed[bit // 8 % len(content)] ^= 1 << bit % 8
        text = base64.b64encode(changed).decode()
        other = (
            envelope.model_copy(update={"payload": text})
            if name == "payload"
            else envelope.model_copy(update={"signatures": (EnvelopeSignature(sig=text),)})
        )
        assert other.signed_by([KEY_A.public]) is None
    retyped = envelope.model_copy(update={"payloadType": f"{payload_type} "})
    assert retyped.signed_by([KEY_A.public]) is None
