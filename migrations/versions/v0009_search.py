"""Search entries, full text, and labels as numbers

What a version is found by is gathered by the view ``search_sources`` and kept in the table
``search_entries`` by triggers on all tables that the view reads. Who changes one of those tables
in a later revision drops view and triggers first and makes them anew.

On SQLite two full-text indexes read the entries: ``search_terms`` for words that are there or not,
``search_words`` for parts of words, by groups of three characters. On PostgreSQL GIN indexes do the
same; that for parts of words wants the extension pg_trgm, which the owner of a database may create
where it is installed. Without it text is searched all the same, but slowly.
"""

from __future__ import annotations

import math
import re

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# SQLite counts a primary key up by itself only when its type is INTEGER.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
SORT_NAME = sa.String(length=160).with_variant(sa.String(length=160, collation="C"), "postgresql")
WORDS = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
TERMS = sa.Text().with_variant(sa.ARRAY(sa.BigInteger()), "postgresql")

NUMBER = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")

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


def upgrade() -> None:
    op.add_column("labels", sa.Column("number", sa.Double(), nullable=True))
    read_numbers()
    op.create_index(
        op.f("ix_labels_key_number_version_id"), "labels", ["key", "number", "version_id"]
    )
    op.create_table(
        "search_entries",
        sa.Column("version_id", BIG_KEY, nullable=False),
        sa.Column("sort_name", SORT_NAME, nullable=False),
        sa.Column("facets", sa.Text(), nullable=False),
        sa.Column("terms", TERMS, nullable=False),
        sa.Column("words", WORDS, nullable=False),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["model_versions.id"],
            name=op.f("fk_search_entries_version_id_model_versions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", name=op.f("pk_search_entries")),
    )
    op.create_index(op.f("ix_search_entries_sort_name"), "search_entries", ["sort_name"])
    if op.get_bind().dialect.name == "sqlite":
        make_sqlite_search()
    else:
        make_postgresql_search()
    op.execute(
        "INSERT INTO search_entries (version_id, sort_name, facets, terms, words) "
        "SELECT version_id, sort_name, facets, terms, words FROM search_sources"
    )


def read_numbers() -> None:
    """Read the labels that are there as numbers, as `LabelRecord` does with new ones."""
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT version_id, key, value FROM labels")).all()
    numbers = [
        {"version": version, "name": key, "number": float(value)}
        for version, key, value in rows
        if NUMBER.match(value) and math.isfinite(float(value))
    ]
    if numbers:
        connection.execute(
            sa.text(
                "UPDATE labels SET number = :number WHERE version_id = :version AND key = :name"
            ),
            numbers,
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
            sqlite_refresh(
                f"SELECT {row}.id UNION "
                # The one that was the newest, and the one that is.
                "SELECT e.version_id FROM model_versions o JOIN search_entries e "
                "ON e.version_id = o.id "
                f"WHERE o.model_id = {row}.model_id AND instr(e.terms, ' newest ') UNION "
                "SELECT id FROM (SELECT id, max(number) FROM model_versions "
                f"WHERE model_id = {row}.model_id GROUP BY state)"
            ),
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

SQLITE_TEXTS = """
SELECT v.id AS version_id, v.model_id, v.state, m.site_id, m.visibility,
  lower(hex(m.name)) AS hex_name,
  'k' || lower(hex(v.kind)) || ' s' || lower(hex(s.name)) || ' x' || v.state
    || coalesce((SELECT ' ' || group_concat('l' || lower(hex(l.key || '=' || l.value)), ' ')
       FROM labels l WHERE l.version_id = v.id), '') AS facets,
  NOT EXISTS (SELECT 1 FROM model_versions o WHERE o.model_id = v.model_id
    AND o.number > v.number AND o.state = v.state) AS is_newest,
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
    op.execute("CREATE INDEX ix_search_entries_terms ON search_entries USING gin (terms)")
    op.execute(POSTGRESQL_WORDS)
    op.execute(POSTGRESQL_REFRESH)
    for table, versions in VERSIONS_OF.items():
        of_rows = versions if versions.startswith("SELECT") else f"SELECT {versions}"
        make_postgresql_triggers(table, of_rows)
    make_postgresql_triggers("model_versions", "")


def make_postgresql_triggers(table: str, versions: str) -> None:
    """Refresh, after each statement, the entries of all versions that it has to do with."""
    if table == "model_versions":
        body = "PERFORM refresh_search_entries(ARRAY(SELECT id FROM changed), "
        body += "ARRAY(SELECT DISTINCT model_id FROM changed));"
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

POSTGRESQL_SOURCES = r"""
CREATE VIEW search_sources AS
SELECT v.id AS version_id,
  m.name || ' ' || s.name || ' ' || lpad(v.number::text, 10, '0') AS sort_name,
  array_to_string(counted.terms, ' ') AS facets,
  ARRAY(SELECT search_term_number(term) FROM unnest(
    counted.terms
    || ARRAY['n' || encode(convert_to(m.name, 'UTF8'), 'hex'), 'y' || m.site_id || v.state,
             'a' || m.site_id]
    || CASE WHEN NOT EXISTS (SELECT 1 FROM model_versions o WHERE o.model_id = v.model_id
         AND o.number > v.number AND o.state = v.state) THEN ARRAY['newest'] ELSE '{}' END
    || CASE m.visibility WHEN 'consortium' THEN ARRAY['aall'] ELSE '{}' END
    || ARRAY(SELECT 'a' || g.site_id FROM grants g
         WHERE g.model_id = m.id AND m.visibility = 'sites')
    || ARRAY(SELECT 'l' || encode(convert_to(l.key, 'UTF8'), 'hex')
         FROM labels l WHERE l.version_id = v.id)
    || ARRAY(SELECT 'm' || encode(convert_to(k.method || ':' || k.key, 'UTF8'), 'hex')
         FROM merge_keys k WHERE k.version_id = v.id)
    || ARRAY(SELECT DISTINCT 'w' || encode(convert_to(short.word, 'UTF8'), 'hex')
         FROM regexp_split_to_table(lowered.words, '[\u0001-/\u003A-`{-\u007F]+') AS short (word)
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

POSTGRESQL_WORDS = """
DO $$ BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm;
  CREATE INDEX ix_search_entries_words ON search_entries USING gin (words gin_trgm_ops);
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported
    OR undefined_object THEN
  RAISE NOTICE 'text is searched without an index, for there is no extension pg_trgm: %', SQLERRM;
END $$
"""

# The models are locked first, and what is there is asked for in a later statement: of two
# transactions that change one model, the second sees all that the first has done.
POSTGRESQL_REFRESH = """
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
    SELECT DISTINCT ON (model_id, state) id FROM model_versions
    WHERE model_id = ANY(of_models) ORDER BY model_id, state, number DESC
  ))
  ON CONFLICT (version_id) DO UPDATE SET
    sort_name = excluded.sort_name, facets = excluded.facets, terms = excluded.terms,
    words = excluded.words;
END $$
"""


def downgrade() -> None:
    tables = (*VERSIONS_OF, "model_versions")
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for table in tables:
        for event, _row in events_on(table):
            act = event.split()[0].lower()
            if is_sqlite:
                op.execute(f"DROP TRIGGER search_{table}_{act}")
            else:
                op.execute(f"DROP TRIGGER search_{act} ON {table}")
        if not is_sqlite:
            op.execute(f"DROP FUNCTION search_{table}_changed()")
    if is_sqlite:
        op.execute("DROP TABLE search_terms")
        op.execute("DROP TABLE search_words")
    else:
        op.execute("DROP FUNCTION refresh_search_entries(bigint[], integer[])")
    op.execute("DROP VIEW search_sources")
    if is_sqlite:
        op.execute("DROP VIEW search_texts")
    else:
        op.execute("DROP FUNCTION search_term_number(text)")
    op.drop_table("search_entries")
    op.drop_index("ix_labels_key_number_version_id", table_name="labels")
    op.drop_column("labels", "number")
    if not is_sqlite:
        op.execute(POSTGRESQL_WITHOUT_WORDS)


# It may be of use to others, or have been there before.
POSTGRESQL_WITHOUT_WORDS = """
DO $$ BEGIN
  DROP EXTENSION IF EXISTS pg_trgm;
EXCEPTION WHEN insufficient_privilege OR dependent_objects_still_exist THEN
  RAISE NOTICE 'the extension pg_trgm stays';
END $$
"""
