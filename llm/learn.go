package llm

import (
	"cmp"
	"math"
	"sync"
)

// Estimator learns what requests of a model take, from those that were answered. It keeps a few numbers for each of
// the first MaxModels models that it meets, and one set for all others. It is safe for concurrent use.
type Estimator struct {
	o  EstimatorOptions
	mu sync.Mutex
	by map[string]*learned
}

// EstimatorOptions configures an Estimator. The zero value is a safe default.
type EstimatorOptions struct {
	// Quantile is the share of requests that are to take no more than what is estimated, 0.5 to 0.999. Default 0.95.
	Quantile float64

	// MaxOutput is how many tokens a model may write to a request that does not say it. Default 4096.
	MaxOutput int64

	// Whole estimates all of the output that a request allows for, and not what was learned: a budget is never
	// exceeded, and is used by less.
	Whole bool
}

// maxModels bounds the models that are learned apart: clients choose their names.
const maxModels = 64

// learned is what is known of one model.
type learned struct {
	read    length   // by the bytes of the request
	written length   // by those of text that were seen
	output  quantile // tokens written
}

// length is how many tokens there are to so many bytes of text. A token is a byte at least, so what there is more was
// in no text: an image that stood as its address, a conversation that stood as its ID, thoughts that nobody was shown.
// As tokens for each byte, the few bytes of such a request would have the long text of any other caller cost millions.
type length struct {
	perByte quantile
	beside  quantile // tokens that were in no text
}

func (l *length) add(tokens, bytes int64, share float64) {
	beside := 0.0
	if tokens <= bytes {
		l.perByte.add(float64(tokens)/float64(bytes), share, short)
	} else {
		beside = float64(tokens) - l.text(bytes)
	}
	l.beside.follow(beside, share, long) // from the first on: the largest of a few would be that of one caller
}

// text is how many tokens so many bytes are.
func (l *length) text(bytes int64) float64 { return float64(bytes) * l.perByte.or(1.0/bytesPerToken) }

// tokens is how many there are to so many bytes of text.
func (l *length) tokens(bytes int64) float64 { return l.text(bytes) + l.beside.at }

// forget has what is in no text count for less. Who is denied for it teaches nothing, and would be denied for ever.
func (l *length) forget() { l.beside.at *= 1 - long/10 }

// NewEstimator returns one that has learned nothing yet: it takes three bytes for a token, and the whole of the output.
func NewEstimator(o EstimatorOptions) *Estimator {
	if o.Quantile == 0 {
		o.Quantile = 0.95
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = 4096
	}
	return &Estimator{o: o, by: map[string]*learned{}}
}

// bytesPerToken is what texts in English have as 4, code and other languages as less.
const bytesPerToken = 3

// Estimate is what a request may take.
func (e *Estimator) Estimate(r *Request) Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, output := e.by[e.name(r.Model)], math.Inf(1)
	if l == nil {
		l = &learned{}
	} else if !e.o.Whole {
		output = l.output.or(output)
	}
	u := Usage{Input: whole(l.read.tokens(r.Text)), Output: whole(min(output, float64(e.limit(r))))}
	l.read.forget()
	return u
}

// limit is how many tokens an answer may have.
func (e *Estimator) limit(r *Request) int64 { return cmp.Or(r.MaxOutput, e.o.MaxOutput) }

// whole is so many tokens, rounded up.
func whole(tokens float64) int64 { return bounded(int64(math.Ceil(min(tokens, most)))) }

// Written is how many tokens an answer has of whose text so many bytes were seen, as far as is known: no more than the
// request allows for, unless that many bytes are more.
func (e *Estimator) Written(r *Request, bytes int64) int64 {
	if bytes == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.by[e.name(r.Model)]
	if l == nil {
		l = &learned{}
	}
	return whole(min(l.written.tokens(bytes), max(float64(e.limit(r)), float64(bytes)/bytesPerToken)))
}

// Learn is told what a request has taken, once it is answered, and how many bytes of text its answer had.
func (e *Estimator) Learn(r *Request, took Usage, written int64) {
	if r.Text <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	name := e.name(r.Model)
	l := e.by[name]
	if l == nil {
		l = &learned{}
		e.by[name] = l
	}
	l.read.add(took.Input, r.Text, e.o.Quantile)
	l.output.add(float64(took.Output), e.o.Quantile, long)
	if written > 0 {
		l.written.add(took.Output, written, e.o.Quantile)
	}
}

// name is under what a model is learned.
func (e *Estimator) name(model string) string {
	if _, known := e.by[model]; known || len(e.by) < maxModels {
		return model
	}
	return ""
}

// quantile follows a quantile of what it is told: a value above moves it up by as many more steps as are to stay below
// it, a value below moves it down by one. A step is a share of where it stands, so that numbers of any size do.
// The first values are taken as they are, by their largest.
type quantile struct {
	seen int
	at   float64
}

// early is how many values are needed before the quantile is followed.
const early = 20

// The share by which a value below moves it: short for how many tokens a byte is, which differs little, long for how
// many a model writes. One above moves it by nineteen as many, for 95 of 100, and that is how much too high it may
// stand: an answer that is cut off pays by its text.
const (
	short = 0.002
	long  = 0.01
)

func (q *quantile) add(v, share, step float64) {
	if q.seen++; q.seen <= early {
		q.at = max(q.at, v)
		return
	}
	q.follow(v, share, step)
}

func (q *quantile) follow(v, share, step float64) {
	if v > q.at {
		q.at += max(q.at, 1e-3) * step * share / (1 - share)
		return
	}
	q.at -= q.at * step
}

// or is the quantile, or what is assumed until there is one.
func (q *quantile) or(assumed float64) float64 {
	if q.seen < early {
		return assumed
	}
	return q.at
}
