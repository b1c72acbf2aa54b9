package llm

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// MeterOptions configures a Meter. The zero value counts tokens.
type MeterOptions struct {
	Count  Count
	Prices []Price // for Money, one at least
	EstimatorOptions
}

// Meter tells what requests to language models cost, before and after they are answered. It is safe for concurrent
// use.
type Meter struct {
	count     Count
	prices    []priced
	estimator *Estimator
}

// NewMeter returns a Meter, or an error that names every field at fault.
func NewMeter(o MeterOptions) (*Meter, error) {
	var errs []error
	if o.Count > Money {
		errs = append(errs, fmt.Errorf("Count is %d, want Tokens, Input, Output or Money", o.Count))
	}
	var prices []priced
	for i, p := range o.Prices {
		for _, err := range CheckPrice(p) {
			errs = append(errs, fmt.Errorf("Prices[%d]: %w", i, err))
		}
		prices = append(prices, compile(p))
	}
	if o.Count == Money && len(o.Prices) == 0 {
		errs = append(errs, errors.New("Prices is empty, want one for Money at least"))
	}
	if o.Quantile != 0 && !(o.Quantile >= 0.5 && o.Quantile <= 0.999) {
		errs = append(errs, fmt.Errorf("Quantile is %v, want 0.5 to 0.999", o.Quantile))
	}
	if o.MaxOutput < 0 || o.MaxOutput > most {
		errs = append(errs, fmt.Errorf("MaxOutput is %d, want 0 to %d tokens", o.MaxOutput, int64(most)))
	}
	return &Meter{o.Count, prices, NewEstimator(o.EstimatorOptions)}, errors.Join(errs...)
}

// cost is what u is charged for a model.
func (m *Meter) cost(model string, u Usage) int64 {
	switch m.count {
	case Input:
		return max(1, u.Input)
	case Output:
		return max(1, u.Output)
	case Money:
		return max(1, price(m.prices, model, u.Input).money(u))
	}
	return max(1, u.Input+u.Output)
}

// modelIn is the model that a path names, as those of Gemini (/v1beta/models/NAME:generateContent) and Bedrock
// (/model/NAME/converse) do.
func modelIn(path string) string {
	_, rest, found := strings.Cut(path, "/models/")
	if !found {
		_, rest, _ = strings.Cut(path, "/model/")
	}
	if end := strings.IndexAny(rest, "/:"); end > 0 && end <= mostModel {
		return rest[:end]
	}
	return ""
}

// Exchange is one request and its answer.
type Exchange struct {
	meter    *Meter
	request  Request
	estimate Usage
	answer   Answer
	status   int
}

// Ask reads a request, of whose body the first bytes are here and whole says whether these are all, and tells what it
// may cost. The answer has to come in clear text, which it asks for by the header.
func (m *Meter) Ask(r *http.Request, body []byte, whole bool) (*Exchange, int64) {
	x := &Exchange{meter: m}
	if whole {
		x.request = ParseRequest(body)
	} else {
		x.request.Text = max(r.ContentLength, int64(len(body)))
	}
	if x.request.Model == "" {
		x.request.Model = modelIn(r.URL.Path)
	}
	r.Header.Set("Accept-Encoding", "identity")
	x.estimate = m.estimator.Estimate(&x.request)
	return x, m.cost(x.request.Model, x.estimate)
}

// Begin is told how the answer begins.
func (x *Exchange) Begin(status int, header http.Header) {
	x.status = status
	x.answer.Begin(header)
}

// Write is told of a piece of the answer's body, as it is passed on.
func (x *Exchange) Write(p []byte) { x.answer.Write(p) }

// SoFar is what the request has cost as far as is seen.
func (x *Exchange) SoFar() int64 { return x.meter.cost(x.request.Model, x.seen()) }

// seen is what the answer says, or the request's estimate with what has been written.
func (x *Exchange) seen() Usage {
	u, known := x.answer.Usage()
	written := x.meter.estimator.Written(&x.request, x.answer.Written())
	if !known || u.Input == 0 {
		u.Input = x.estimate.Input
	}
	u.Output = max(u.Output, written)
	return u
}

// Cost is what the request has cost, once its answer has ended. Complete says whether it came to
// its end. An answer that says nothing costs what was estimated, a stream that was left what had
// been written, and one that failed a single token: models take nothing for those.
func (x *Exchange) Cost(complete bool) int64 {
	u, known := x.answer.Usage()
	switch {
	case known && complete:
		x.meter.estimator.Learn(&x.request, u, x.answer.Written())
		return x.meter.cost(x.request.Model, u)
	case x.status >= 400 && complete:
		return 1
	case known, x.answer.Written() > 0:
		return x.SoFar()
	}
	return x.meter.cost(x.request.Model, x.estimate)
}
