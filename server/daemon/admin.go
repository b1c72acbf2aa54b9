package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/live"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/database"
	"github.com/headgate-io/headgate/server/metrics"
	"github.com/headgate-io/headgate/server/record"
)

// adminDoor is what stands behind the admin listener.
func (d *Daemon) adminDoor(access admin.Access) (*admin.Door, error) {
	p := d.parts
	door, err := admin.New(admin.Options{
		Limiter:        p.limiter,
		Bodies:         p.calls,
		Policies:       p.rules,
		Database:       p.database.rules,
		Compare:        database.Compare,
		Compile:        p.compileOptions,
		Metrics:        p.meter.Handler(),
		Ready:          d.ready,
		Log:            d.log,
		Audit:          p.database,
		FindKey:        p.database.findKey,
		Warnings:       d.warnings,
		Fleet:          p.database.fleet,
		Reload:         d.Reload,
		Reverted:       p.reverted,
		Budgets:        p.reporter(),
		LimitRequests:  p.requests,
		Activity:       p.activity,
		Usage:          p.days,
		Scored:         p.scored,
		Try:            d.try,
		Gateway:        p.name,
		ActiveWarnings: p.watch.Active,
		Access:         access,
		Tokens:         p.adminTokens.find,
		TokenStore:     p.adminTokens,
		KeyStore:       p.keyStore(),
		Calls:          p.database,
		Observe:        p.meter.ObserveCall,
		Unrecorded:     p.meter.CallUnrecorded,
	})
	if err == nil && access.NeedToken && access.Token == "" && p.adminTokens.len() == 0 {
		d.log.Warn(
			"nobody can use the admin listener: it wants a token and there is none; " +
				"make one with `headgate admin token create`",
		)
	}
	return door, err
}

// adminAccess is who may call, with the token of the file, if there is one.
func adminAccess(c *config.Config) (_ admin.Access, err error) {
	calls := c.AdminAccess.Calls
	a := admin.Access{
		NeedToken:   c.NeedsAdminToken(),
		KeepCalls:   calls.Keep,
		MostCalls:   calls.MaxLooks,
		MostChanges: calls.MaxChanges,
	}
	if c.AdminTokenFile != "" {
		a.TokenName = filepath.Base(c.AdminTokenFile)
		if a.Token, err = ReadToken(c.AdminTokenFile); err != nil {
			err = fmt.Errorf("admin_token_file is %q: %w, want a file that begins with the token", c.AdminTokenFile,
				err)
		}
	}
	return a, err
}

// minToken is the fewest characters that a secret of a file may have.
const minToken = 16

// ReadToken returns the first line of a token file.
func ReadToken(path string) (string, error) {
	token, err := readSecret(path)
	if err != nil {
		return "", fmt.Errorf("admin token: %w", err)
	}
	return token, nil
}

// readSecret returns the first line of a file, of which nobody should guess it.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	secret := strings.TrimSpace(line)
	if len(secret) < minToken {
		return "", fmt.Errorf("the first line of %s has %d characters, want %d or more", path, len(secret), minToken)
	}
	return secret, nil
}

// adminTokens are the admin tokens in force. While the database is away those
// that were read last are: metrics and explanations are wanted most when
// something is broken. So a revocation waits until it is back; the end of a token
// does not.
type adminTokens struct {
	*policyDatabase
	value *live.Value[[]database.AdminTokenRecord, tokenTable]
}

type tokenTable map[[sha256.Size]byte]record.AdminToken

// tokensLook is the time between two looks at the admin tokens, and so how long
// a revoked one counts at most.
const tokensLook = time.Second

func startAdminTokens(ctx context.Context, from *policyDatabase, c config.Config,
	log *slog.Logger) (*adminTokens, error) {
	value, err := live.New(live.Options[[]database.AdminTokenRecord, tokenTable]{
		Name: "admin tokens", Source: adminTokenSource{from}, Interval: tokensLook, Log: log, Spread: true,
		LastGood: besideCopy(c.LastGood, ".admin.json"),
		Encode:   live.EncodeEach[database.AdminTokenRecord], Decode: live.DecodeEach[database.AdminTokenRecord],
		Build: func(records []database.AdminTokenRecord, _ *tokenTable) (*tokenTable, error) {
			table := make(tokenTable, len(records))
			for _, r := range records {
				table[r.Digest] = r.AdminToken
			}
			return &table, nil
		},
	})
	if err != nil {
		return nil, err
	}
	if err := value.Start(ctx); err != nil {
		log.Error("no admin tokens could be loaded: until the database can be read, none of them counts", "error", err)
	}
	return &adminTokens{from, value}, nil
}

// besideCopy is where something is kept beside the last good rules; nowhere if
// those are not kept.
func besideCopy(lastGood, ending string) string {
	if lastGood == "" {
		return ""
	}
	return strings.TrimSuffix(lastGood, ".json") + ending
}

func (a *adminTokens) run(ctx context.Context) { a.value.Run(ctx) }

func (a *adminTokens) find(digest [sha256.Size]byte) (record.AdminToken, bool) {
	table := a.value.Get()
	if table == nil {
		return record.AdminToken{}, false
	}
	token, ok := (*table)[digest]
	return token, ok
}

func (a *adminTokens) len() int {
	if table := a.value.Get(); table != nil {
		return len(*table)
	}
	return 0
}

func (a *adminTokens) status() func() metrics.AdminTokenStatus {
	if a == nil {
		return nil
	}
	return func() metrics.AdminTokenStatus {
		s := a.value.Status()
		return metrics.AdminTokenStatus{Tokens: a.len(), Failures: s.Failures, Stale: s.Stale}
	}
}

// CreateAdminToken makes a token that counts here at once.
func (a *adminTokens) CreateAdminToken(ctx context.Context, n record.NewAdminToken) (t record.AdminToken,
	text string, err error) {
	s, err := a.get(ctx)
	if err != nil {
		return t, "", err
	}
	if t, text, err = s.CreateAdminToken(ctx, n); err == nil {
		_ = a.value.Reload(ctx) // says so itself; the token counts at the next look
	}
	return t, text, err
}

// RevokeAdminToken ends a token here at once.
func (a *adminTokens) RevokeAdminToken(ctx context.Context, name string) error {
	s, err := a.get(ctx)
	if err != nil {
		return err
	}
	if err := s.RevokeAdminToken(ctx, name); err != nil {
		return err
	}
	if err := a.value.Reload(ctx); err != nil {
		return fmt.Errorf("it is revoked in the database and still counts here: %w", err)
	}
	return nil
}

// ListAdminTokens reports the tokens as they are in the database.
func (a *adminTokens) ListAdminTokens(ctx context.Context) ([]record.AdminToken, error) {
	s, err := a.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.ListAdminTokens(ctx)
}

// adminTokenSource reads the admin tokens of a database.
type adminTokenSource struct{ *policyDatabase }

func (a adminTokenSource) Version(ctx context.Context) (string, error) {
	s, err := a.get(ctx)
	if err != nil {
		return "", err
	}
	return s.AdminTokens().Version(ctx)
}

func (a adminTokenSource) Load(ctx context.Context) ([]database.AdminTokenRecord, string, error) {
	s, err := a.get(ctx)
	if err != nil {
		return nil, "", err
	}
	return s.AdminTokens().Load(ctx)
}

var (
	_ admin.Auditor    = (*policyDatabase)(nil)
	_ admin.CallStore  = (*policyDatabase)(nil)
	_ admin.TokenStore = (*adminTokens)(nil)
)

// AuditBefore reports what was done to buckets.
func (d *policyDatabase) AuditBefore(ctx context.Context, before int64, most int) ([]record.Audit, error) {
	s, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.AuditBefore(ctx, before, most)
}

// BeginCall writes down a call that is about to change something.
func (d *policyDatabase) BeginCall(ctx context.Context, c record.Call) (int64, error) {
	s, err := d.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.BeginCall(ctx, c)
}

// EndCall adds how it ended.
func (d *policyDatabase) EndCall(ctx context.Context, id int64, c record.Call) error {
	s, err := d.get(ctx)
	if err != nil {
		return err
	}
	return s.EndCall(ctx, id, c)
}

// AppendCalls writes down calls that have ended.
func (d *policyDatabase) AppendCalls(ctx context.Context, calls []record.Call) error {
	s, err := d.get(ctx)
	if err != nil {
		return err
	}
	return s.AppendCalls(ctx, calls)
}

// ListCalls reports calls.
func (d *policyDatabase) ListCalls(ctx context.Context, before int64, most int) ([]record.Call, error) {
	s, err := d.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.ListCalls(ctx, before, most)
}

// PruneCalls forgets old calls.
func (d *policyDatabase) PruneCalls(ctx context.Context, before time.Time, looks, changes int64) (int64, error) {
	s, err := d.get(ctx)
	if err != nil {
		return 0, err
	}
	return s.PruneCalls(ctx, before, looks, changes)
}
