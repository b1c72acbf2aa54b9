package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/record"
)

// FindKey reports the project and tier of an API key by its ID, or
// record.ErrNotFound.
type FindKey func(ctx context.Context, id string) (project, tier string, err error)

// BucketRequest names a bucket, as people write it: an endpoint, and whose. See
// inspect.Query.
type BucketRequest struct {
	Endpoint string `json:"endpoint"`
	Subject  string `json:"subject,omitempty"` // default: the only one there is

	// The evidence of a request.
	Peer   string   `json:"peer,omitempty"`
	Header []string `json:"header,omitempty"` // lines "Name: value"

	// Or what is known by name.
	Key     string `json:"key,omitempty"` // ID
	Project string `json:"project,omitempty"`
	Tier    string `json:"tier,omitempty"`
	Address string `json:"address,omitempty"`

	Certificate string `json:"certificate,omitempty"`  // name of a client certificate
	Token       string `json:"token,omitempty"`        // subject of a bearer token
	User        string `json:"user,omitempty"`         // ID of one whom a program has logged in
	SignedAgent string `json:"signed_agent,omitempty"` // name of an agent that signs its requests

	Identifier string `json:"identifier,omitempty"`

	// Of are values of path parameters and claims, for rules that count by them:
	// "path:customer": "42".
	Of map[string]string `json:"of,omitempty"`

	Unparsable bool `json:"unparsable,omitempty"` // the bucket of all whose identifier cannot be read

	// Amount and Expires are for a grant. Without Expires it is given once.
	Amount  int64     `json:"amount,omitempty"`
	Expires time.Time `json:"expires,omitzero"`

	// By is who says they are making the change, for the audit. It proves
	// nothing; the audit says whose token it was beside it.
	By string `json:"by,omitempty"`
}

// BucketChange is the answer to a reset or a grant.
type BucketChange struct {
	Audit  int64          `json:"audit"` // number of the entry
	Given  int64          `json:"given,omitempty"`
	Bucket inspect.Bucket `json:"bucket"`
}

// Query translates b, or names every field at fault.
func (b *BucketRequest) Query() (inspect.Query, error) {
	q := inspect.Query{
		Endpoint: b.Endpoint, KeyID: b.Key, Project: b.Project, Tier: b.Tier, Identifier: b.Identifier,
		Certificate: b.Certificate, Token: b.Token, User: b.User, SignedAgent: b.SignedAgent, Unparsable: b.Unparsable,
	}
	var errs []error
	address := func(field, text string, into *netip.Addr) {
		addr, err := netip.ParseAddr(text)
		switch {
		case text == "":
		case err != nil:
			errs = append(errs, fmt.Errorf("%s is %q, want an IP address", field, asSent(text)))
		default:
			*into = addr
		}
	}
	address("peer", b.Peer, &q.Peer)
	address("address", b.Address, &q.Address)
	if b.Subject != "" {
		var rule policy.Rule // "path:customer" as well as "path"
		q.Subject = &rule.Subject
		if err := rule.Subject.UnmarshalText([]byte(b.Subject)); err != nil &&
			(rule.SetSubject(b.Subject) != nil || !rule.Subject.Named()) {
			errs = append(errs, err)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(b.Of)) {
		var rule policy.Rule
		switch err := rule.SetSubject(subject); {
		case err != nil || !rule.Subject.Named():
			errs = append(errs, fmt.Errorf("of is %q, want path:NAME or claim:NAME, and a value", asSent(subject)))
		case b.Of[subject] == "":
			errs = append(errs, fmt.Errorf("of %s is empty, want its value", asSent(subject)))
		case q.Named == nil:
			q.Named = map[string]string{}
			fallthrough
		default:
			value := b.Of[subject]
			if of, _ := rule.Subject.Counts(); of == policy.SubjectPath {
				value = endpoint.ParameterValue(value)
			}
			whose := rule.Whose() // whatever a rule counts of it
			if other, twice := q.Named[whose]; twice && other != value {
				errs = append(errs, twoValues(whose))
			}
			q.Named[whose] = value
		}
	}
	if len(b.Header) > 0 {
		if err := checkHeader(b.Header); err != nil {
			errs = append(errs, err)
		}
		q.Header = header(b.Header)
	}
	return q, errors.Join(errs...)
}

func (d *Door) getBuckets(w http.ResponseWriter, r *http.Request) {
	b, err := bucketInQuery(r)
	d.inspect(w, r, b, err)
}

func (d *Door) inspectBuckets(w http.ResponseWriter, r *http.Request) {
	b, err := readBucket(w, r)
	if err == nil && (b.Amount != 0 || !b.Expires.IsZero()) {
		err = errors.New("amount and expires are for /v1/buckets/grant")
	}
	d.inspect(w, r, b, err)
}

func (d *Door) resetBucket(w http.ResponseWriter, r *http.Request) {
	b, err := readBucket(w, r)
	if err == nil && (b.Amount != 0 || !b.Expires.IsZero()) {
		err = errors.New("amount and expires are for /v1/buckets/grant; a reset fills the bucket")
	}
	d.changeBucket(w, r, b, err, record.ActionReset,
		func(ctx context.Context, q inspect.Query, approve inspect.Approve) (s inspect.Bucket, given int64, err error) {
			s, err = inspect.Reset(ctx, d.Limiter, q, approve)
			return s, 0, err
		})
}

func (d *Door) grantBucket(w http.ResponseWriter, r *http.Request) {
	b, err := readBucket(w, r)
	d.changeBucket(w, r, b, err, record.ActionGrant,
		func(ctx context.Context, q inspect.Query, approve inspect.Approve) (inspect.Bucket, int64, error) {
			return inspect.Grant(ctx, d.Limiter, q, b.Amount, b.Expires, approve)
		})
}

// query translates b, and finds out whose a key is that was named alone.
func (d *Door) query(ctx context.Context, b *BucketRequest) (inspect.Query, error) {
	q, err := b.Query()
	if err != nil || q.KeyID == "" {
		return q, err
	}
	project, tier, err := d.FindKey(ctx, q.KeyID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return q, fmt.Errorf("key is %q, want the ID of one that `headgate key list` shows", asSent(q.KeyID))
	case err != nil:
		return q, fault{unavailable, fmt.Errorf("The key could not be looked up: %w.", err)}
	case q.Project != "" && q.Project != project:
		return q, fmt.Errorf("project is %q, want none: the key says which", asSent(q.Project))
	}
	q.Project, q.Tier = project, tier
	return q, nil
}

func (d *Door) inspect(w http.ResponseWriter, r *http.Request, b BucketRequest, err error) {
	q := inspect.Query{}
	if err == nil {
		q, err = d.query(r.Context(), &b)
	}
	if err != nil {
		d.refuseBucket(w, r, invalidRequest, err)
		return
	}
	in, err := inspect.Find(r.Context(), d.Limiter, q)
	if err != nil {
		d.refuseBucket(w, r, unavailable, err)
		return
	}
	answer(w, http.StatusOK, in)
}

// changeBucket makes one change, after it was written down.
func (d *Door) changeBucket(w http.ResponseWriter, r *http.Request, b BucketRequest, err error, action string,
	do func(context.Context, inspect.Query, inspect.Approve) (inspect.Bucket, int64, error)) {
	q := inspect.Query{}
	if err == nil {
		q, err = d.query(r.Context(), &b)
	}
	if err != nil {
		d.refuseBucket(w, r, invalidRequest, err)
		return
	}
	once, before, err := d.repeats.begin(r, d.Now(), action, &b)
	if err != nil {
		d.refuseBucket(w, r, invalidRequest, err)
		return
	}
	if before != nil {
		about(r, before.Bucket.Rule+": "+before.Bucket.Whose)
		answer(w, http.StatusOK, *before)
		return
	}
	var made *BucketChange // once it is
	defer func() { once.end(d.Now(), made) }()
	q.Once = once.once
	entry := record.Audit{Actor: callerOf(r).actor, Claimed: b.By, Action: action, Amount: b.Amount, Expires: b.Expires}
	var done BucketChange
	// Once it is written down it is made, whether or not anybody waits.
	ctx := context.WithoutCancel(r.Context())
	done.Bucket, done.Given, err = do(ctx, q, func(s inspect.Bucket) (err error) {
		entry.Rule, entry.Endpoint, entry.Subject, entry.Whose = s.Rule, s.Endpoint, s.Subject, s.Whose
		about(r, s.Rule+": "+s.Whose)
		if done.Audit, err = d.Audit.Append(ctx, entry); err != nil {
			return fault{unavailable, fmt.Errorf("The change could not be audited, so it was not made: %w.", err)}
		}
		return nil
	})
	if err != nil {
		if done.Audit != 0 {
			entry.Action = record.ActionFailed
			if _, err := d.Audit.Append(ctx, entry); err != nil {
				d.Log.Error("a change of a bucket is in the audit and was not made", "audit", done.Audit, "error", err)
			}
		}
		d.refuseBucket(w, r, unavailable, err)
		return
	}
	made = &done
	d.Log.Info("bucket changed", "action", action, "rule", done.Bucket.Rule, "subject", done.Bucket.Subject,
		"amount", b.Amount, "actor", entry.Actor, "audit", done.Audit)
	answer(w, http.StatusOK, done)
}

// refuseBucket answers an error: as one of kind k, unless it tells itself whose
// it is.
func (d *Door) refuseBucket(w http.ResponseWriter, r *http.Request, k kind, err error) {
	if query := (*inspect.QueryError)(nil); errors.As(err, &query) {
		k = unacceptable
	}
	var f fault
	if errors.As(err, &f) {
		k = f.kind
	}
	if k == unavailable {
		d.Log.Error("bucket not available", "error", err)
	}
	refuse(w, r, k, err)
}

// bucketInQuery reads names from a query. Evidence has no place there: queries
// end up in logs.
func bucketInQuery(r *http.Request) (BucketRequest, error) {
	query := r.URL.Query()
	of, err := OfValues(query["of"])
	return BucketRequest{
		Endpoint: query.Get("endpoint"), Subject: query.Get("subject"), Key: query.Get("key"),
		Project: query.Get("project"),
		Tier:    query.Get("tier"), Address: query.Get("address"), Identifier: query.Get("identifier"),
		Certificate: query.Get("certificate"), Token: query.Get("token"), User: query.Get("user"),
		SignedAgent: query.Get("signed_agent"), Of: of,
	}, err
}

// OfValues reads BucketRequest.Of as it is written in a query and on the command line: "path:customer=42".
func OfValues(written []string) (of map[string]string, err error) {
	if len(written) > 0 {
		of = map[string]string{}
	}
	for _, one := range written {
		subject, value, _ := strings.Cut(one, "=")
		if other, twice := of[subject]; twice && other != value {
			err = errors.Join(err, twoValues(subject))
		}
		of[subject] = value
	}
	return of, err
}

func twoValues(subject string) error {
	return fmt.Errorf("of has two values for %s, want one", asSent(subject))
}

func readBucket(w http.ResponseWriter, r *http.Request) (b BucketRequest, err error) {
	return b, decode(w, r, &b)
}
