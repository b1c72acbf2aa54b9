package database

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// dialect is what databases say differently. Everything else is said in words
// that all of them understand: coalesce rather than IS, LIKE rather than instr,
// a column called rowid in every table.
type dialect struct {
	// numbered parameters are $1 and $2 rather than ?.
	numbered bool

	// rows is how many rows one INSERT has at most: one where a statement
	// costs no way over a network.
	rows int

	// sameRule and sameProject find a row by endpoint, project_id, tier,
	// subject and lasts, and by project_id: byte for byte, and by an index.
	sameRule, sameProject string

	// newRule, newProject and newReplica follow the values of an INSERT that
	// takes the place of the row that is there.
	newRule, newProject, newReplica string

	// clock is the time in milliseconds.
	clock string

	// about is how many rules there are, as far as that is known in a moment.
	about string

	// returning means that INSERT … RETURNING tells the number of a row, and
	// not the driver.
	returning bool

	// bytes means that the driver gives texts as bytes.
	bytes bool

	// wire means that the driver is pgx, which gives values as PostgreSQL
	// sends them, and that a table is read faster as it lies than in order.
	wire bool

	// take means that SQL calls a function of this program with values of rows.
	take bool
}

const (
	// lasts tells the lasting rule of a key from the one that stands in for it
	// until it expires.
	lasts = "(CASE WHEN expires_at IS NULL THEN '' ELSE 'until' END)"

	sameRuleInWords = "endpoint = ? AND coalesce(project_id, '') = ? AND coalesce(tier, '') = ? AND subject = ? AND " +
		lasts + " = ?"

	newRuleInWords = ` ON CONFLICT (endpoint, coalesce(project_id, ''), coalesce(tier, ''), subject, ` + lasts +
		`) DO UPDATE SET
	rps_limit = excluded.rps_limit, per_seconds = excluded.per_seconds, burst = excluded.burst,
	algorithm = excluded.algorithm, mode = excluded.mode, scope = excluded.scope,
	on_store_loss = excluded.on_store_loss, expires_at = excluded.expires_at, name = excluded.name,
	enforce_percent = excluded.enforce_percent, count_when = excluded.count_when, penalty = excluded.penalty, refusal = excluded.refusal,
	priority = excluded.priority`

	countRules = "SELECT count(*) FROM policies"

	newProjectInWords = " ON CONFLICT (project_id) DO UPDATE SET tier = excluded.tier"

	newReplicaInWords = ` ON CONFLICT (name) DO UPDATE SET
	process = excluded.process, program = excluded.program, started_at = excluded.started_at,
	rules = excluded.rules, rules_number = excluded.rules_number, loaded_at = excluded.loaded_at,
	stale_ms = excluded.stale_ms, every_ms = excluded.every_ms, last_error = excluded.last_error, clock_offset_ms = excluded.clock_offset_ms,
	seen_at = excluded.seen_at`
)

var sqliteDialect = dialect{
	take: true,
	rows: 1, sameRule: sameRuleInWords, sameProject: "project_id = ?", newRule: newRuleInWords,
	newProject: newProjectInWords,
	newReplica: newReplicaInWords, clock: "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
	// To count the rows reads an index whole. Rows that were never deleted have all
	// numbers from the first to the last, so as long as seventeen all along are
	// there, hardly any of the others is missing.
	about: `SELECT CASE
		WHEN (SELECT count(*) FROM policies WHERE rowid IN (SELECT first + (last - first) / 16 * column1 FROM (VALUES
			(0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16)))) = 17 THEN last - first + 1
		ELSE (` + countRules + `) END
		FROM (SELECT (SELECT min(rowid) FROM policies) AS first, (SELECT max(rowid) FROM policies) AS last)`,
}

var postgresDialect = dialect{
	numbered: true, rows: 250, sameRule: sameRuleInWords, sameProject: "project_id = ?", newRule: newRuleInWords,
	newProject: newProjectInWords,
	newReplica: newReplicaInWords, clock: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
	// To count the rows of a table takes PostgreSQL a fifth as long as to send
	// them. So they are guessed from its size, and from how many were on a page
	// when it was vacuumed last, else from what a rule takes at least.
	about: `SELECT CAST(pg_relation_size(oid) * CASE WHEN relpages > 0 THEN greatest(reltuples, 0) / relpages / 8192 ELSE 1 / 150.0 END AS bigint)
		FROM pg_catalog.pg_class WHERE oid = CAST('policies' AS regclass)`,
	returning: true, wire: true,
}

// MySQL ignores spaces at the end of what it compares, whatever the collation
// is, unless that is one which only MySQL or only MariaDB has. A hash counts
// every byte.
var mysqlDialect = dialect{
	rows: 250, sameRule: "rule_key = unhex(sha2(concat_ws(char(0), ?, ?, ?, ?, ?), 256))",
	sameProject: "project_key = unhex(sha2(?, 256))",
	newRule: ` ON DUPLICATE KEY UPDATE
	rps_limit = VALUES(rps_limit), per_seconds = VALUES(per_seconds), burst = VALUES(burst),
	algorithm = VALUES(algorithm), mode = VALUES(mode), scope = VALUES(scope),
	on_store_loss = VALUES(on_store_loss), expires_at = VALUES(expires_at), name = VALUES(name),
	enforce_percent = VALUES(enforce_percent), count_when = VALUES(count_when), penalty = VALUES(penalty), refusal = VALUES(refusal),
	priority = VALUES(priority)`,
	newProject: " ON DUPLICATE KEY UPDATE tier = VALUES(tier)",
	newReplica: ` ON DUPLICATE KEY UPDATE
	process = VALUES(process), program = VALUES(program), started_at = VALUES(started_at),
	rules = VALUES(rules), rules_number = VALUES(rules_number), loaded_at = VALUES(loaded_at),
	stale_ms = VALUES(stale_ms), every_ms = VALUES(every_ms), last_error = VALUES(last_error), clock_offset_ms = VALUES(clock_offset_ms),
	seen_at = VALUES(seen_at)`,
	clock: "CAST(unix_timestamp() * 1000 + microsecond(now(3)) DIV 1000 AS SIGNED)",
	about: countRules,
	bytes: true,
}

// tx is a transaction in a database's dialect. Its queries have ? for
// parameters, and for nothing else.
type tx struct {
	*sql.Tx
	conn    *sql.Conn // that it runs on
	dialect *dialect
}

func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.Tx.QueryContext(ctx, t.dialect.bind(query), args...)
}

func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.Tx.QueryRowContext(ctx, t.dialect.bind(query), args...)
}

func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.Tx.ExecContext(ctx, t.dialect.bind(query), args...)
}

func (t *tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return t.Tx.PrepareContext(ctx, t.dialect.bind(query))
}

// preferIndexes lets PostgreSQL read no table whole for which it has an index, until the
// function that it returns is called. It knows nothing of a table that was
// filled lately, and would look at every rule for the few that are not plain.
func (t *tx) preferIndexes(ctx context.Context) (restore func() error, err error) {
	set := func(value string) error {
		if !t.dialect.wire {
			return nil
		}
		_, err := t.ExecContext(ctx, "SET LOCAL enable_seqscan TO "+value)
		return err
	}
	return func() error { return set("DEFAULT") }, set("off")
}

// checkSchema refuses a database that another headgate has changed.
func (t *tx) checkSchema(ctx context.Context, known int64) error {
	var has int64
	if err := t.QueryRowContext(ctx, selectSchema).Scan(&has); err != nil {
		return err
	}
	return checkSchema(has, known)
}

// insert runs an INSERT of one row and reports its id.
func (t *tx) insert(ctx context.Context, query string, args ...any) (id int64, err error) {
	if t.dialect.returning {
		err = t.QueryRowContext(ctx, query+" RETURNING id", args...).Scan(&id)
		return id, err
	}
	done, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return done.LastInsertId()
}

// bind writes the parameters of a query as the database wants them.
func (d *dialect) bind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, more := strings.Cut(query, "?")
		b.WriteString(before)
		if !more {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}
