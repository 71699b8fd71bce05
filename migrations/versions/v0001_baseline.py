"""The tables of the pool

Until the first release this baseline makes the tables from the records. At the release it must
be written out (Alembic's autogenerate does that), so that later changes of the records do not
change it.

The view ``search_sources`` gathers the searchable text of a version; triggers on all tables that
it reads keep the table ``search_entries`` up to date. A later revision that changes
one of those tables drops the view and the triggers first and creates them again.

On SQLite two full-text indexes read the entries: ``search_terms`` for whole terms,
``search_words`` for parts of words, by groups of three characters. On PostgreSQL one GIN index
does both; parts of words need the extension pg_trgm, which the owner of a database may create
where it is installed. Without it, text search works but is slow.
"""

from alembic import op

from pool_server.database.records import Record

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Which versions an event changes the entries of. ``{row}`` is the row after or before the event.
VERSIONS_OF = {
    "labels": "{row}.version_id",
    "merge_keys": "{row}.version_id",
    "grants": "SELECT id FROM model_versions WHERE model_id = {row}.model_id",
    "models": "SELECT id FROM model_versions WHERE model_id = {row}.id",
    "sites": "SELECT v.id FROM model_versions v JOIN models m ON m.id = v.model_id "
    "WHERE m.site_id = {row}.id",
}
COLUMNS_OF = {
    "models": ("name", "visibility", "site_id"),
    "sites": ("name", "display_name"),
    "model_versions": ("number", "kind", "state", "description", "model_id"),
}

FLAGGED = "EXISTS (SELECT 1 FROM withdrawal_flags f WHERE f.version_id = {version}.id)"
# Of the versions in one state the newest that holds nothing withdrawn, else the newest of all.
IS_NEWEST = f"""NOT EXISTS (SELECT 1 FROM model_versions o WHERE o.model_id = v.model_id
    AND o.number > v.number AND o.state = v.state
    AND ({FLAGGED.format(version="v")} OR NOT {FLAGGED.format(version="o")}))
  AND NOT ({FLAGGED.format(version="v")}
    AND EXISTS (SELECT 1 FROM model_versions o WHERE o.model_id = v.model_id
      AND o.state = v.state AND NOT {FLAGGED.format(version="o")}))"""


def upgrade() -> None:
    Record.metadata.create_all(op.get_bind())
    if op.get_bind().dialect.name == "sqlite":
        make_sqlite_audit_guard()
        make_sqlite_search()
    else:
        make_postgresql_audit_guard()
        make_postgresql_search()


# The database itself refuses to change audit entries.


def make_sqlite_audit_guard() -> None:
    for act in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{act.lower()} BEFORE {act} ON audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit is only appended to'); END"
        )


def make_postgresql_audit_guard() -> None:
    op.execute(
        "CREATE FUNCTION refuse_to_change_the_audit() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'the audit is only appended to' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for act in ("UPDATE", "DELETE", "TRUNCATE"):
        op.execute(
            f"CREATE TRIGGER audit_refuses_{act.lower()} BEFORE {act} ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_change_the_audit()"
        )


# SQLite


def make_sqlite_search() -> None:
    op.execute(sqlite_texts())
    op.execute(SQLITE_SOURCES)
    op.execute(
        "CREATE VIRTUAL TABLE search_terms USING fts5(terms, content='search_entries', "
        "content_rowid='version_id', tokenize='ascii', detail=none, columnsize=0)"
    )
    op.execute(
        "CREATE VIRTUAL TABLE search_words USING fts5(words, content='search_entries', "
        "content_rowid='version_id', tokenize='trigram', columnsize=0)"
    )
    for index, column in (("search_terms", "terms"), ("search_words", "words")):
        add = f"INSERT INTO {index} (rowid, {column}) VALUES (new.version_id, new.{column});"
        remove = (
            f"INSERT INTO {index} ({index}, rowid, {column}) "
            f"VALUES ('delete', old.version_id, old.{column});"
        )
        make_sqlite_trigger(f"{index}_insert", "INSERT ON search_entries", add)
        make_sqlite_trigger(f"{index}_delete", "DELETE ON search_entries", remove)
        make_sqlite_trigger(
            f"{index}_update",
            f"UPDATE OF {column} ON search_entries WHEN old.{column} IS NOT new.{column}",
            remove + add,
        )
    for table, versions in VERSIONS_OF.items():
        for event, row in events_on(table):
            make_sqlite_trigger(
                f"search_{table}_{event.split()[0].lower()}",
                f"{event} ON {table}",
                sqlite_refresh(versions.format(row=row)),
            )
    for event, row in events_on("model_versions"):
        make_sqlite_trigger(
            f"search_model_versions_{event.split()[0].lower()}",
            f"{event} ON model_versions",
            sqlite_refresh(f"SELECT {row}.id UNION {sqlite_newest(f'{row}.model_id')}"),
        )
    for event, row in events_on("withdrawal_flags"):
        model = f"(SELECT model_id FROM model_versions WHERE id = {row}.version_id)"
        make_sqlite_trigger(
            f"search_withdrawal_flags_{event.split()[0].lower()}",
            f"{event} ON withdrawal_flags",
            sqlite_refresh(sqlite_newest(model)),
        )


def sqlite_newest(model: str) -> str:
    """Select the versions of a model that were the newest, and those that are."""
    return (
        "SELECT e.version_id FROM model_versions o JOIN search_entries e ON e.version_id = o.id "
        f"WHERE o.model_id = {model} AND instr(e.terms, ' newest ') "
        "UNION SELECT id FROM (SELECT id, max(number) FROM model_versions "
        f"WHERE model_id = {model} GROUP BY state) "
        "UNION SELECT id FROM (SELECT id, max(number) FROM model_versions v "
        f"WHERE model_id = {model} AND NOT {FLAGGED.format(version='v')} GROUP BY state)"
    )


def events_on(table: str) -> list[tuple[str, str]]:
    """Return the events that the search must hear of, each with the row that it is about."""
    columns = COLUMNS_OF.get(table)
    changed = f"UPDATE OF {', '.join(columns)}" if columns else "UPDATE"
    # A model or site comes without versions, and goes without.
    alone = [] if table in {"models", "sites"} else [("INSERT", "new"), ("DELETE", "old")]
    return [*alone, (changed, "new")]


def make_sqlite_trigger(name: str, event: str, body: str) -> None:
    op.execute(f"CREATE TRIGGER {name} AFTER {event} BEGIN {body} END")


def sqlite_refresh(versions: str) -> str:
    return (
        "INSERT INTO search_entries (version_id, sort_name, facets, terms, words) "
        "SELECT version_id, sort_name, facets, terms, words FROM search_sources "
        f"WHERE version_id IN ({versions}) ON CONFLICT (version_id) DO UPDATE SET "
        "sort_name = excluded.sort_name, facets = excluded.facets, terms = excluded.terms, "
        "words = excluded.words;"
    )


SQLITE_SOURCES = """
CREATE VIEW search_sources AS
SELECT version_id, sort_name, facets, words,
  ' ' || facets || ' n' || hex_name || ' y' || site_id || state
  || CASE WHEN is_newest THEN ' newest' ELSE '' END
  || ' a' || site_id || CASE visibility WHEN 'consortium' THEN ' aall' ELSE '' END
  || coalesce((SELECT ' ' || group_concat('a' || g.site_id, ' ') FROM grants g
     WHERE g.model_id = found.model_id AND found.visibility = 'sites'), '')
  || coalesce((SELECT ' ' || group_concat('l' || lower(hex(l.key)), ' ')
     FROM labels l WHERE l.version_id = found.version_id), '')
  || coalesce((SELECT ' ' || group_concat('m' || lower(hex(k.method || ':' || k.key)), ' ')
     FROM merge_keys k WHERE k.version_id = found.version_id), '')
  || coalesce((SELECT ' ' || group_concat('w' || lower(hex(word)), ' ') FROM (
       WITH RECURSIVE split(word, rest) AS (
         SELECT '', found.spaced || ' '
         UNION ALL
         SELECT substr(rest, 1, instr(rest, ' ') - 1), substr(rest, instr(rest, ' ') + 1)
         FROM split WHERE rest <> ''
       ) SELECT DISTINCT word FROM split WHERE length(word) IN (1, 2)
     )), '')
  || ' ' AS terms
FROM search_texts found
"""

SQLITE_TEXTS = f"""
SELECT v.id AS version_id, v.model_id, v.state, m.site_id, m.visibility,
  lower(hex(m.name)) AS hex_name,
  'k' || lower(hex(v.kind)) || ' s' || lower(hex(s.name)) || ' x' || v.state
    || coalesce((SELECT ' ' || group_concat('l' || lower(hex(l.key || '=' || l.value)), ' ')
       FROM labels l WHERE l.version_id = v.id), '') AS facets,
  {IS_NEWEST} AS is_newest,
  m.name || ' ' || s.name || ' ' || substr('0000000000' || v.number, -10) AS sort_name,
  lower(m.name || char(10) || s.name || char(10) || s.display_name || char(10)
    || v.description || coalesce((SELECT char(10) || group_concat(l.key || '=' || l.value,
    char(10)) FROM labels l WHERE l.version_id = v.id), '')) AS words
FROM model_versions v JOIN models m ON m.id = v.model_id JOIN sites s ON s.id = m.site_id
"""


def sqlite_texts() -> str:
    """Return a view of all texts, and of each with spaces for all but letters and digits."""
    codes = [*range(1, 32), *range(33, 48), *range(58, 65), *range(91, 97), *range(123, 128)]
    query = f"SELECT *, words AS spaced FROM ({SQLITE_TEXTS})"
    # SQLite's parser limits how deep calls may be nested.
    columns = "version_id, model_id, state, site_id, visibility, hex_name, facets, is_newest"
    for start in range(0, len(codes), 16):
        spaced = "spaced"
        for code in codes[start : start + 16]:
            spaced = f"replace({spaced}, char({code}), ' ')"
        query = f"SELECT {columns}, sort_name, words, {spaced} AS spaced FROM ({query})"
    return f"CREATE VIEW search_texts AS {query}"


# PostgreSQL


def make_postgresql_search() -> None:
    op.execute(POSTGRESQL_NUMBERS)
    op.execute(POSTGRESQL_SOURCES)
    op.execute(POSTGRESQL_INDEX)
    op.execute(POSTGRESQL_REFRESH)
    for table, versions in VERSIONS_OF.items():
        of_rows = versions if versions.startswith("SELECT") else f"SELECT {versions}"
        make_postgresql_triggers(table, of_rows)
    make_postgresql_triggers("model_versions", "")
    make_postgresql_triggers("withdrawal_flags", "")


def make_postgresql_triggers(table: str, versions: str) -> None:
    """Refresh, after each statement, the entries of all versions that it has to do with."""
    if table == "model_versions":
        body = "PERFORM refresh_search_entries(ARRAY(SELECT id FROM changed), "
        body += "ARRAY(SELECT DISTINCT model_id FROM changed));"
    elif table == "withdrawal_flags":
        body = "PERFORM refresh_search_entries('{}', ARRAY(SELECT DISTINCT v.model_id "
        body += "FROM changed JOIN model_versions v ON v.id = changed.version_id));"
    else:
        inner = versions.format(row="changed")
        body = (
            "PERFORM refresh_search_entries(ARRAY(SELECT DISTINCT found.id FROM changed "
            f"CROSS JOIN LATERAL ({inner}) AS found (id)), '{{}}');"
        )
    op.execute(
        f"CREATE FUNCTION search_{table}_changed() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN {body} RETURN NULL; END $$"
    )
    for event, row in events_on(table):
        act = event.split()[0]
        which = "NEW" if row == "new" else "OLD"
        op.execute(
            f"CREATE TRIGGER search_{act.lower()} AFTER {act} ON {table} "
            f"REFERENCING {which} TABLE AS changed "
            f"FOR EACH STATEMENT EXECUTE FUNCTION search_{table}_changed()"
        )


# The numbers are a quarter as long as the terms, and compared faster.
POSTGRESQL_NUMBERS = """
CREATE FUNCTION search_term_number(term text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT ('x' || substr(md5(term), 1, 16))::bit(64)::bigint
$$
"""

POSTGRESQL_SOURCES = rf"""
CREATE VIEW search_sources AS
SELECT v.id AS version_id,
  m.name || ' ' || s.name || ' ' || lpad(v.number::text, 10, '0') AS sort_name,
  array_to_string(counted.terms, ' ') AS facets,
  ARRAY(SELECT search_term_number(term) FROM unnest(
    counted.terms
    || ARRAY['n' || encode(convert_to(m.name, 'UTF8'), 'hex'), 'y' || m.site_id || v.state,
             'a' || m.site_id]
    || CASE WHEN {IS_NEWEST} THEN ARRAY['newest'] ELSE '{{}}' END
    || CASE m.visibility WHEN 'consortium' THEN ARRAY['aall'] ELSE '{{}}' END
    || ARRAY(SELECT 'a' || g.site_id FROM grants g
         WHERE g.model_id = m.id AND m.visibility = 'sites')
    || ARRAY(SELECT 'l' || encode(convert_to(l.key, 'UTF8'), 'hex')
         FROM labels l WHERE l.version_id = v.id)
    || ARRAY(SELECT 'm' || encode(convert_to(k.method || ':' || k.key, 'UTF8'), 'hex')
         FROM merge_keys k WHERE k.version_id = v.id)
    || ARRAY(SELECT DISTINCT 'w' || encode(convert_to(short.word, 'UTF8'), 'hex')
         FROM regexp_split_to_table(lowered.words, '[\u0001-/\u003A-`{{-\u007F]+') AS short (word)
         WHERE length(short.word) IN (1, 2))
  ) AS term) AS terms,
  lowered.words
FROM model_versions v
JOIN models m ON m.id = v.model_id
JOIN sites s ON s.id = m.site_id
CROSS JOIN LATERAL (
  SELECT ARRAY[
      'k' || encode(convert_to(v.kind, 'UTF8'), 'hex'),
      's' || encode(convert_to(s.name, 'UTF8'), 'hex'),
      'x' || v.state
    ] || ARRAY(SELECT 'l' || encode(convert_to(l.key || '=' || l.value, 'UTF8'), 'hex')
      FROM labels l WHERE l.version_id = v.id) AS terms
) AS counted
CROSS JOIN LATERAL (SELECT lower(m.name || chr(10) || s.name || chr(10) || s.display_name
  || chr(10) || v.description || coalesce((SELECT chr(10) || string_agg(l.key || '=' || l.value,
  chr(10)) FROM labels l WHERE l.version_id = v.id), '')) AS words) AS lowered
"""

# With an index of each, a search for a label and a word would read all versions that have one of
# them; one index of both columns returns only those that have both.
POSTGRESQL_INDEX = """
DO $$ BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm;
  CREATE INDEX ix_search_entries_terms_words ON search_entries
    USING gin (terms, words gin_trgm_ops);
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported
    OR undefined_object THEN
  CREATE INDEX ix_search_entries_terms ON search_entries USING gin (terms);
  RAISE NOTICE 'text is searched without an index: the extension pg_trgm is missing: %', SQLERRM;
END $$
"""

# The models are locked first, and what is there is asked for in a later statement: of two
# transactions that change one model, the second sees all that the first has done.
POSTGRESQL_REFRESH = f"""
CREATE FUNCTION refresh_search_entries(versions bigint[], of_models integer[]) RETURNS void
LANGUAGE plpgsql AS $$ BEGIN
  PERFORM 1 FROM models WHERE id = ANY(of_models) OR id IN (
    SELECT model_id FROM model_versions WHERE id = ANY(versions)
  ) ORDER BY id FOR NO KEY UPDATE;
  INSERT INTO search_entries (version_id, sort_name, facets, terms, words)
  SELECT version_id, sort_name, facets, terms, words FROM search_sources
  WHERE version_id = ANY(versions || ARRAY(
    SELECT v.id FROM model_versions v JOIN search_entries e ON e.version_id = v.id
    WHERE v.model_id = ANY(of_models) AND search_term_number('newest') = ANY(e.terms)
  ) || ARRAY(
    SELECT DISTINCT ON (model_id, state) id FROM model_versions v
    WHERE model_id = ANY(of_models)
    ORDER BY model_id, state, {FLAGGED.format(version="v")}, number DESC
  ))
  ON CONFLICT (version_id) DO UPDATE SET
    sort_name = excluded.sort_name, facets = excluded.facets, terms = excluded.terms,
    words = excluded.words;
END $$
"""
