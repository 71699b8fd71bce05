"""Terms of versions: what a merge inherits, and what the pool refuses because of them.

The rules stand in `pool_server.wire.data_use_rules`. The terms of a version count for a site
that may see it, or has fetched it: an input that a site does not know of is as one that the pool
does not have, and reveals nothing.

The same file may stand in the pool at several sites. The terms count that the site gave it which
published it first, of those that are known; what others lay on their copies binds themselves alone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session, aliased

from pool_server.database.records import (
    GrantRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    SiteRecord,
    TermRecord,
)
from pool_server.errors import RefusedError, TermsForbidError
from pool_server.registry.access import AVAILABLE, CONSORTIUM, known_to
from pool_server.registry.repository import among
from pool_server.wire import data_use_rules
from pool_server.wire.data_use import CLINICAL_CARE, Term


def today_utc() -> date:
    return datetime.now(UTC).date()


def known_terms(session: Session, digests: Collection[str], site_id: int) -> dict[str, set[Term]]:
    """Return the terms that files have for a site, by digest.

    Digests that the pool does not have are left out; one whose versions have no terms has an
    empty set.
    """
    found: dict[str, set[Term]] = {}
    if not digests:
        return found
    rows = session.execute(_terms_that_count(), {"digests": list(digests), "site_id": site_id})
    for digest, code, detail in rows:
        terms = found.setdefault(digest, set())
        if code is not None:
            terms.add(Term(code=code, detail=detail or ""))
    return found


def require_terms(
    session: Session,
    own: Sequence[Term],
    parents: Mapping[str, str],
    *,
    site: SiteRecord,
    use: data_use_rules.IntendedUse | None,
) -> None:
    """Raise unless a file with these terms and parents may be announced, as a model of `site`.

    `own` is what its uploader declares; `parents` has the digests of a merged model's inputs, and
    what to call each.
    """
    if problems := data_use_rules.contradictions(own, "the declared terms"):
        raise RefusedError(
            "; ".join(each.message for each in problems),
            code="terms_refused",
            hint="Alternatives stand in one term, separated by commas: DUO:0000028=site-a,site-b.",
        )
    known = known_terms(session, parents, site.id)
    inputs = [
        data_use_rules.TermsOf(parents[digest], data_use_rules.sort_terms(known[digest]))
        for digest in sorted(known)
    ]
    if any(each.code == CLINICAL_CARE for each in own):
        use = (use or data_use_rules.IntendedUse()).including("clinical")
    names = (site.name, site.display_name)
    problems = data_use_rules.check_merge(inputs, use, today=today_utc(), institution=names)
    # What the uploader declares must not contradict what it inherits, either.
    inherited = data_use_rules.inherited_terms(each.terms for each in inputs)
    problems += data_use_rules.contradictions([*inherited, *own], "what is declared and inherited")
    _raise_if_forbidden(problems, "the terms of the inputs forbid this merge")


def require_redistributable(version: ModelVersionRecord) -> None:
    """Raise unless the terms of a version allow that its file is handed on outside the pool.

    A moratorium that has not ended, a time limit that has passed, and terms that name users,
    institutions or projects forbid it (`check_redistribution`). The owner's right to hand the
    file on is another matter: `pool_server.registry.access`.
    """
    name = f"{version.model.site.name}/{version.model.name}@{version.number}"
    terms = [Term(code=each.code, detail=each.detail) for each in version.terms]
    problems = data_use_rules.check_redistribution(terms, today=today_utc(), name=name)
    _raise_if_forbidden(problems, f"{name} cannot be handed on")


def _raise_if_forbidden(problems: Iterable[data_use_rules.TermProblem], what: str) -> None:
    forbidding = list(dict.fromkeys(each for each in problems if each.forbids))
    if forbidding:
        raise TermsForbidError(
            f"{what}: " + "; ".join(each.message for each in forbidding),
            hint="Ask the sites whose terms they are; `poolctl models info` shows them.",
            details={
                "problems": [
                    {"message": each.message, "codes": list(each.codes)} for each in forbidding
                ]
            },
        )


def add_terms(
    session: Session,
    site_id: int,
    version: ModelVersionRecord,
    own: Sequence[Term],
    parents: Collection[str],
    *,
    is_proven: bool,
) -> None:
    """Give a new version its terms: its own, and what it inherits.

    It inherits from every input that the site knows, and from the same file elsewhere in the
    pool. Versions made from it that were there before inherit from it now; so do copies of the
    file when the pool has made it again from these parents.
    """
    inputs = set(parents) - {version.digest}
    known = known_terms(session, inputs, site_id)
    # Inputs that the pool does not know allow nothing beyond what the others do.
    inherited = set(data_use_rules.inherited_terms(known.get(digest, set()) for digest in inputs))
    copied = _terms_of_copies(session, site_id, version)
    inherited |= {each for each in copied or () if each.code not in data_use_rules.PERMISSIVE}
    # What would allow more than the inputs do is not taken from whoever made the merge.
    kept = {
        each
        for each in own
        if not inherited or each in inherited or each.code not in data_use_rules.PERMISSIVE
    }
    session.add_all(
        [
            *(_record(version.id, each, inherited=True) for each in inherited - kept),
            *(_record(version.id, each, inherited=False) for each in kept),
        ]
    )
    session.flush()
    if copied is None:
        _pass_on(
            session,
            version,
            [each for each in kept | inherited if each.code not in data_use_rules.PERMISSIVE],
        )
    elif is_proven:
        bound = [each for each in inherited if each.code not in data_use_rules.PERMISSIVE]
        _pass_on(session, version, bound, to_copies=True)


def _record(version_id: int, term: Term, *, inherited: bool) -> TermRecord:
    return TermRecord(
        version_id=version_id, code=term.code, detail=term.detail, inherited=inherited
    )


def _terms_of_copies(
    session: Session, site_id: int, version: ModelVersionRecord
) -> set[Term] | None:
    """Return the terms of the same file elsewhere in the pool; None where it is nowhere else."""
    rows = session.execute(
        _terms_that_count().where(ModelVersionRecord.id != version.id),
        {"digests": [version.digest], "site_id": site_id},
    ).all()
    if not rows:
        return None
    return {
        Term(code=code, detail=detail or "") for _digest, code, detail in rows if code is not None
    }


@cache
def _terms_that_count() -> Select[str, str | None, str | None]:
    """Select (digest, code, detail): what the first site said of files, and what a site itself.

    The files are those of the parameter ``digests``, the site that of ``site_id``. A version
    without terms has one row without a code.
    """
    site_id: BindParameter[int] = bindparam("site_id")
    oldest = (
        select(ModelVersionRecord.digest, func.min(ModelVersionRecord.id).label("version_id"))
        .join(ModelVersionRecord.model)
        .where(among(ModelVersionRecord.digest, "digests"), known_to(site_id))
        .group_by(ModelVersionRecord.digest)
        .subquery()
    )
    first, first_model = aliased(ModelVersionRecord), aliased(ModelRecord)
    return (
        select(ModelVersionRecord.digest, TermRecord.code, TermRecord.detail)
        .join(ModelVersionRecord.model)
        .join(oldest, oldest.c.digest == ModelVersionRecord.digest)
        .join(first, first.id == oldest.c.version_id)
        .join(first_model, first_model.id == first.model_id)
        .outerjoin(TermRecord, TermRecord.version_id == ModelVersionRecord.id)
        .where(
            or_(ModelRecord.site_id == first_model.site_id, ModelRecord.site_id == site_id),
            known_to(site_id),
        )
        .distinct()
    )


def _sites_that_see(session: Session, version: ModelVersionRecord) -> ColumnElement[bool]:
    """Return a condition on `ModelRecord`: it is of a site that may see a new version."""
    home = session.get_one(ModelRecord, version.model_id)
    own = ModelRecord.site_id == home.site_id
    if version.state != AVAILABLE:
        return own
    if home.visibility == CONSORTIUM:
        return true()
    granted = select(GrantRecord.site_id).where(GrantRecord.model_id == home.id)
    return or_(own, ModelRecord.site_id.in_(granted))


def _pass_on(
    session: Session, version: ModelVersionRecord, terms: Sequence[Term], *, to_copies: bool = False
) -> None:
    """Give the descendants of a file that came after them what they inherit from it.

    Those of sites that may see it; with `to_copies` all, and the same file at other sites.
    """
    if not terms:
        return
    tree = select(literal(version.digest).label("digest")).cte("descendants", recursive=True)
    tree = tree.union(
        select(ParentRecord.child_digest).join(
            tree, and_(ParentRecord.parent_digest == tree.c.digest, ParentRecord.followed)
        )
    )
    rows = session.execute(
        select(ModelVersionRecord.id, TermRecord.code, TermRecord.detail)
        .outerjoin(TermRecord, TermRecord.version_id == ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
        .where(
            ModelVersionRecord.digest.in_(select(tree.c.digest)),
            ModelVersionRecord.id != version.id,
            true() if to_copies else ModelVersionRecord.digest != version.digest,
            true() if to_copies else _sites_that_see(session, version),
        )
    )
    has: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for version_id, code, detail in rows:
        has[version_id].add((code or "", detail or ""))
    session.add_all(
        _record(version_id, term, inherited=True)
        for version_id, present in has.items()
        for term in terms
        if (term.code, term.detail) not in present
    )
