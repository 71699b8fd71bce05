"""Every site can learn that its files were withdrawn, even if their models are not shared."""

from tests.pool_server.lineage.withdrawals.families import Family
from tests.pool_server.lineage.withdrawals.test_withdrawing import make_private
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, upload


def test_copies_of_models_no_longer_shared_can_be_checked(pool: PoolDriver) -> None:
    family = Family(pool, "unshared")
    for name in ("a/bad", "b/good"):
        family.add(name)
    family.add("b/merged", "a/bad")
    family.add("b/clean", "b/good")
    assert family.download("a/bad", by="d").status_code == 200
    for site in "ab":
        make_private(pool, family.site(site))
    heir = network_bytes()
    upload(family.member("a"), family.address("a/bad"), heir)
    named = {"successor": f"{family.address('a/bad')}@2"}
    family.withdraw("a/bad", "consent-withdrawn", explanation="One family.", **named)

    asked = {"digests": [family.digest(name) for name in ("a/bad", "b/merged", "b/clean")]}
    answer = family.member("d", "viewer").post("/api/v1/withdrawals/check", json=asked)
    bad, merged = answer.json()["items"]
    nameless = f"sha256:{family.digest('a/bad')}"
    [withdrawn] = bad["withdrawals"]
    del withdrawn["withdrawn_at"]
    assert withdrawn == {
        "address": nameless, "digest": family.digest("a/bad"), "reason": "consent-withdrawn",
        "effect": "refuse", "explanation": "", "withdrawn_by": "", "successors": [],
    }  # fmt: skip
    assert bad["successors"] == []
    [flag] = merged["flags"]
    assert (flag["address"], flag["digest"]) == (nameless, family.digest("a/bad"))
    assert family.prefix not in answer.text
    site_items = family.member("a").post("/api/v1/withdrawals/check", json=asked).json()["items"]
    assert site_items[0]["withdrawals"][0]["explanation"] == "One family."
    assert site_items[0]["successors"] == [f"pool://{family.address('a/bad')}@2"]
