"""Envelopes against the vectors of the DSSE project, and keys against RFC 8032.

The vectors are those of `testvectors/vectors.json` of secure-systems-lab/dsse; their keys are the
first two of RFC 8032, section 7.1, so that every signature can be made again.
"""

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.wire.signatures.keys import (
    Envelope,
    EnvelopeSignature,
    PrivateKey,
    PublicKey,
    pae,
    readable_fingerprint,
    seal,
)

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


def test_signing_gives_the_vector_again() -> None:
    envelope = seal(IN_TOTO, base64.b64decode(STATEMENT), KEY_A)
    assert envelope.payload == STATEMENT
    assert envelope.signatures == (EnvelopeSignature(keyid=KEY_A.public.key_id, sig=SIGNED_BY_A),)


def test_the_key_that_signed_is_found_without_a_hint() -> None:
    both = Envelope(
        payloadType=IN_TOTO,
        payload=STATEMENT,
        signatures=(EnvelopeSignature(sig=SIGNED_BY_A), EnvelopeSignature(sig=SIGNED_BY_B)),
    )
    assert both.signed_by([KEY_B.public, KEY_A.public]) == KEY_B.public
    misleading = Envelope(
        payloadType=IN_TOTO,
        payload=STATEMENT,
        signatures=(EnvelopeSignature(keyid=KEY_B.public.key_id, sig=SIGNED_BY_A),),
    )
    assert misleading.signed_by([KEY_B.public]) is None, "the hint proves nothing"


@pytest.mark.parametrize("spoilt", ["????", "abc"])
def test_invalid_base64_is_refused(spoilt: str) -> None:
    good = EnvelopeSignature(sig=SIGNED_BY_A)
    with pytest.raises(ValueError, match="base64"):
        Envelope(payloadType="", payload=spoilt, signatures=(good,)).signed_by([KEY_A.public])
    with pytest.raises(ValueError, match="base64"):
        Envelope(
            payloadType=IN_TOTO, payload=STATEMENT, signatures=(EnvelopeSignature(sig=spoilt),)
        ).signed_by([KEY_A.public])


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


def test_keys_survive_their_text_forms(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    assert PrivateKey.from_pem(key.to_pem()) == key
    assert PublicKey.from_text(key.public.text) == key.public
    assert key.seed.hex() not in repr(key)
    assert readable_fingerprint(key.public.key_id).replace(" ", "") == key.public.key_id
    # OpenSSL is an independent reader of both forms.
    secret, message, signature = tmp_path / "key.pem", tmp_path / "m", tmp_path / "s"
    secret.write_bytes(key.to_pem())
    derived = subprocess.run(
        ["openssl", "pkey", "-in", secret, "-pubout"], capture_output=True, check=True, text=True
    )
    assert derived.stdout == key.public.to_pem()
    message.write_bytes(b"a message")
    sign = ["openssl", "pkeyutl", "-sign", "-rawin"]
    subprocess.run([*sign, "-inkey", secret, "-in", message, "-out", signature], check=True)
    assert signature.read_bytes() == key.sign(b"a message")


@pytest.mark.parametrize("text", ["", "!" * 44, base64.b64encode(bytes(33)).decode()])
def test_invalid_public_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        PublicKey.from_text(text)


def test_invalid_private_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no private key"):
        PrivateKey.from_pem(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    path = tmp_path / "other.pem"
    make = ["openssl", "genpkey", "-algorithm", "ED25519", "-aes-256-cbc", "-pass", "pass:x"]
    subprocess.run([*make, "-out", path], check=True)
    with pytest.raises(ValueError, match="encrypted"):
        PrivateKey.from_pem(path.read_bytes())
