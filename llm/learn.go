package llm

import (
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

// learned are quantiles of one model.
type learned struct {
	perByte quantile // tokens read for each byte of the request
	output  quantile // tokens written
	text    quantile // tokens written for each byte of text that was seen
}

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
	perByte, output := 1.0/bytesPerToken, math.Inf(1)
	if l := e.by[e.name(r.Model)]; l != nil {
		perByte = l.perByte.or(perByte)
		if !e.o.Whole {
			output = l.output.or(output)
		}
	}
	limit := r.MaxOutput
	if limit == 0 {
		limit = e.o.MaxOutput
	}
	u := Usage{Input: bounded(int64(math.Ceil(float64(r.Text) * perByte)))}
	u.Output = bounded(int64(math.Ceil(min(output, float64(limit)))))
	return u
}

// Written is how many tokens so many bytes of an answer's text are, as far as is known.
func (e *Estimator) Written(model string, bytes int64) int64 {
	if bytes == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	perByte := 1.0 / bytesPerToken
	if l := e.by[e.name(model)]; l != nil {
		perByte = l.text.or(perByte)
	}
	return bounded(int64(math.Ceil(float64(bytes) * perByte)))
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
	l.perByte.add(float64(took.Input)/float64(r.Text), e.o.Quantile, short)
	l.output.add(float64(took.Output), e.o.Quantile, long)
	if written > 0 {
		l.text.add(float64(took.Output)/float64(written), e.o.Quantile, short)
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
