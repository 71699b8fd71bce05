"""``poolctl personal``: the personal parts of a site."""

import math
from pathlib import Path
from typing import Annotated, Any

from aggregators.formats import file_digest, write_model
from cli.frame.errors import InputMissingError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, ForceOption, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from site_agent.federated.personal import PersonalPart, assemble, newest_parts, read_part, site_only
from site_agent.networks.files import read_network
from site_agent.pool.profiles import personal_folder
from site_agent.tasks.testing import lineages_of
from site_agent.training.overlap import remember_learned_of

app = group("Show and export the personal parts of networks that your site keeps after rounds.")

PartArgument = Annotated[
    str, Argument("A series of 'personal ls', or a part's own file.", "SERIES|FILE")
]


@command(app, "ls", "personal ls")
def ls(_invocation: Invocation) -> Reply:
    """List the personal parts of this site, with the share of numbers and the score at home.

    Personal parts never leave the site: uploads, exports and the pool refuse them. A part that
    each site gets mixed for it alone (fedpac) is the last layer. To forget a part, remove the
    folder of its file: it also has the part before.
    """
    newest = newest_parts(personal_folder())
    parts = [(series, path, read_part(path)) for series, paths in newest.items() for path in paths]
    data = [_facts(part) | {"series": series, "file": path} for series, path, part in parts]
    columns = ["series", "method", "own", "site", "round", "score", "file"]
    rows = [
        [
            series,
            part.method,
            f"{part.share:.1%}",
            part.site,
            str(part.round_number),
            "" if math.isnan(part.score) else f"{part.score:.2f}",
            str(path),
        ]
        for series, path, part in parts
    ]
    empty = "no personal parts: your site has taken part in no personalised rounds"
    table = TableText(columns, rows, empty=empty)
    return Reply(data, table, [paths["series"] for paths in data])


@command(app, "export", "personal export 3f2a9c1e0b7d4a65 --network alder/gaze -o mine.safetensors")
def export(
    invocation: Invocation,
    part: PartArgument,
    *,
    network: Annotated[str, Option("The shared network, the result of the round.", "FILE|ADDRESS")],
    output: Annotated[Path, Option("File for your site's network.")],
    force: ForceOption = False,
) -> Reply:
    """Write your site's network: the round's result with your personal part in it.

    It can be used like any network, but is marked as site-only and cannot be uploaded.
    """
    require_free(output, force=force)
    personal = _find(part)
    source = invocation.model_file(network).path
    made = site_only(assemble(read_network(source), personal))
    digest = write_model(made, output, format_name="safetensors")
    [lineage] = lineages_of(invocation, [source])
    digest_before, base = file_digest(source), personal.base_digest
    if (lineage or digest_before == base) and base not in lineage - {digest_before}:
        invocation.warn(
            f"{network} was not made in round {personal.round_number} of {personal.method}, from "
            f"which the part of {personal.site} is, nor later: they may not belong together"
        )
    remember_learned_of(source, digest, lineage)
    text = (
        f"{output} is the network of {personal.site} after round {personal.round_number}; "
        "it cannot be uploaded"
    )
    return Reply({"file": output, "digest": digest, **_facts(personal)}, text, [str(output)])


def _find(word: str) -> PersonalPart:
    """Find a part by its series or its file."""
    if Path(word).is_file():
        return read_part(Path(word))
    for series, paths in newest_parts(personal_folder()).items():
        if series.startswith(word):
            return read_part(paths[0])
    raise InputMissingError(f"{word}: no such personal part; 'poolctl personal ls' lists them")


def _facts(part: PersonalPart) -> dict[str, Any]:
    return {
        "site": part.site, "method": part.method, "round": part.round_number,
        "personal_share": part.share, "base": part.base_digest,
        "score": None if math.isnan(part.score) else part.score,
    }  # fmt: skip
