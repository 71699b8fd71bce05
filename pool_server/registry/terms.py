"""Terms of versions: inheritance in merges, and refusals because of terms.

The rules stand in `pool_server.wire.data_use_rules`. The terms of a version count for a site that
may see it, or has downloaded it: an input unknown to the site is treated as missing from the pool,
and reveals nothing.

Several sites may have published the same file. The terms of the first of them that is known to the
site count; terms that others give their copies bind only those sites.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
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
    SiteRecord,
    TermRecord,
)
from pool_server.errors import RefusedError, TermsForbidError
from pool_server.registry.access import AVAILABLE, CONSORTIUM, known_to
from pool_server.registry.repository import among, descendants_of
from pool_server.wire import data_use_rules
from pool_server.wire.data_use import CLINICAL_CARE, Term
from pool_server.wire.data_use_rules import today_utc


def known_terms(session: Session, digests: Collection[str], site_id: int) -> dict[str, set[Term]]:
    """Return the terms of files that count for a site, by digest.

    Digests missing from the pool are omitted; a file without terms has an empty set.
    """
    terms_by_digest: dict[str, set[Term]] = {}
    if not digests:
        return terms_by_digest
    rows = session.execute(_terms_that_count(), {"digests": list(digests), "site_id": site_id})
    for digest, code, detail in rows:
        terms = terms_by_digest.setdefault(digest, set())
        if code is not None:
            terms.add(Term(code=code, detail=detail or ""))
    return terms_by_digest


def require_terms(
    session: Session, declared: Sequence[Term], parents: Mapping[str, str], *, site: SiteRecord
) -> None:
    """Raise unless a file with these terms and parents may be announced, as a model of `site`.

    `declared` are the uploader's terms; `parents` maps the digests of a merged model's inputs to
    names for messages.
    """
    if problems := data_use_rules.contradictions(declared, "the declared terms"):
        raise RefusedError(
            "; ".join(problem.message for problem in problems),
            code="terms_refused",
            hint="Write alternatives in one term, separated by commas: DUO:0000028=site-a,site-b.",
        )
    known = known_terms(session, parents, site.id)
    inputs = [
        data_use_rules.TermsOf(parents[digest], data_use_rules.sort_terms(known[digest]))
        for digest in sorted(known)
    ]
    names = (site.name, site.display_name)
    problems = data_use_rules.check_merge(inputs, today=today_utc(), institution=names)
    if any(term.code == CLINICAL_CARE for term in declared):
        problems += data_use_rules.check_clinical_care(inputs)
    # Declared terms must not contradict inherited ones, either.
    inherited = data_use_rules.inherited_terms(parent.terms for parent in inputs)
    problems += data_use_rules.contradictions(
        [*inherited, *declared], "the declared and inherited terms"
    )
    _raise_if_forbidden(problems, "the terms of the inputs forbid this merge")


def require_redistributable(version: ModelVersionRecord) -> None:
    """Raise unless the terms of a version allow redistribution of its file outside the pool.

    A moratorium that has not ended, a time limit that has passed, and terms that name users,
    institutions or projects forbid it (`check_redistribution`). The owner's right to redistribute
    the file is another matter: `pool_server.registry.access`.
    """
    name = f"{version.model.site.name}/{version.model.name}@{version.number}"
    terms = [Term(code=term.code, detail=term.detail) for term in version.terms]
    problems = data_use_rules.check_redistribution(terms, today=today_utc(), name=name)
    _raise_if_forbidden(problems, f"{name} cannot be passed on")


def _raise_if_forbidden(problems: Iterable[data_use_rules.TermProblem], refusal: str) -> None:
    forbidding = list(dict.fromkeys(problem for problem in problems if problem.forbids))
    if forbidding:
        raise TermsForbidError(
            f"{refusal}: " + "; ".join(problem.message for problem in forbidding),
            hint="Ask the sites that set the terms; `poolctl models info` shows them.",
        )


def add_terms(
    session: Session,
    site_id: int,
    version: ModelVersionRecord,
    declared: Sequence[Term],
    parents: Collection[str],
    *,
    is_proven: bool,
) -> None:
    """Add the declared and the inherited terms of a new version.

    It inherits from every input that the site knows, and from the same file elsewhere in the pool.
    Versions made from it that were published before inherit from it now; so do copies of the file
    if the pool has made it again from these parents.
    """
    inputs = set(parents) - {version.digest}
    known = known_terms(session, inputs, site_id)
    # Inputs unknown to the pool cannot add permissions to those of the others.
    inherited = set(data_use_rules.inherited_terms(known.get(digest, set()) for digest in inputs))
    copied = _terms_of_copies(session, site_id, version)
    inherited |= {term for term in copied or () if term.code not in data_use_rules.PERMISSIVE}
    # The maker of a merge cannot declare permissions that its inputs do not give.
    kept = {
        term
        for term in declared
        if not inherited or term in inherited or term.code not in data_use_rules.PERMISSIVE
    }
    session.add_all(
        [
            *(_record(version.id, term, inherited=True) for term in inherited - kept),
            *(_record(version.id, term, inherited=False) for term in kept),
        ]
    )
    session.flush()
    if copied is None:
        _pass_on(
            session,
            version,
            [term for term in kept | inherited if term.code not in data_use_rules.PERMISSIVE],
        )
    elif is_proven:
        bound = [term for term in inherited if term.code not in data_use_rules.PERMISSIVE]
        _pass_on(session, version, bound, to_copies=True)


def _record(version_id: int, term: Term, *, inherited: bool) -> TermRecord:
    return TermRecord(
        version_id=version_id, code=term.code, detail=term.detail, inherited=inherited
    )


def _terms_of_copies(
    session: Session, site_id: int, version: ModelVersionRecord
) -> set[Term] | None:
    """Return the terms of the same file elsewhere in the pool; None if it has no copy."""
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
    """Select (digest, code, detail) of the terms by each file's first site and by the asking site.

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
    """Return a condition on `ModelRecord`: models of sites that may see a new version."""
    home = session.get_one(ModelRecord, version.model_id)
    is_home = ModelRecord.site_id == home.site_id
    if version.state != AVAILABLE:
        return is_home
    if home.visibility == CONSORTIUM:
        return true()
    granted = select(GrantRecord.site_id).where(GrantRecord.model_id == home.id)
    return or_(is_home, ModelRecord.site_id.in_(granted))


def _pass_on(
    session: Session, version: ModelVersionRecord, terms: Sequence[Term], *, to_copies: bool = False
) -> None:
    """Add a file's terms to descendants that were published before it.

    Only at sites that may see it; with `to_copies` everywhere, and to the same file at other sites.
    """
    if not terms:
        return
    tree = descendants_of(literal(version.digest))
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
