"""Curves of several models: nothing lies on the frame, and legends tell models apart."""

from site_agent.evaluation.report import short_names


def test_legends_leave_out_folders_where_files_are_told_apart() -> None:
    assert short_names(["../big.dat", "/data/a.dat", "site-a/face", "b.dat"]) == {
        "../big.dat": "big.dat",
        "/data/a.dat": "a.dat",
        "site-a/face": "site-a/face",
        "b.dat": "b.dat",
    }
    same = ["../a/x.dat", "../b/x.dat"]
    assert short_names(same) == {name: name for name in same}
