// Package envoy answers Envoy, and what is made of it, over gRPC: its filters for
// external authorization (envoy.service.auth.v3) and for rate limits
// (envoy.service.ratelimit.v3) ask whether a request may pass; the one for quotas
// (envoy.service.rate_limit_quota.v3) says afterwards what has passed.
package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	httpstatus "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate-io/headgate/serve/decisions"
)

// authorization is the service that the filter ext_authz calls.
type authorization struct {
	auth.UnimplementedAuthorizationServer
	answers http.Handler
	failed  func(decisions.Fault, error)
}

// Check answers one question. What is not a question about a request is an error
// of the call, which Envoy takes for a failure of this service.
func (a *authorization) Check(ctx context.Context,
	question *auth.CheckRequest) (response *auth.CheckResponse, err error) {
	defer recovered(a.failed, &err)
	described, err := describe(ctx, question)
	if err != nil {
		a.failed(decisions.Incomplete, err)
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	var answer answer
	a.answers.ServeHTTP(&answer, described)
	return answer.reply(), nil
}

// describe returns the request that a question is about.
func describe(ctx context.Context, question *auth.CheckRequest) (*http.Request, error) {
	about := question.GetAttributes().GetRequest().GetHttp()
	client, clientErr := peer(question.GetAttributes().GetSource().GetAddress())
	var errs []string
	for _, e := range []struct {
		missing bool
		text    string
	}{
		{about == nil, "attributes.request.http is missing"},
		{about != nil && about.GetMethod() == "", "attributes.request.http.method is missing"},
		{about != nil && about.GetPath() == "", "attributes.request.http.path is missing"},
		{clientErr != nil, fmt.Sprintf("attributes.source.address %v", clientErr)},
	} {
		if e.missing {
			errs = append(errs, e.text)
		}
	}
	if len(errs) > 0 {
		return nil, errors.New(strings.Join(errs, ", "))
	}
	r := &http.Request{
		// Envoy has the path in origin form, whatever the client's line was.
		Method: about.GetMethod(), RequestURI: about.GetPath(), ProtoMajor: 2,
		Header: header(about), Host: about.GetHost(), RemoteAddr: client.String(), Body: http.NoBody,
	}
	// A target that net/url cannot read has no safe reading, which is for the door to say.
	r.URL, _ = url.ParseRequestURI(r.RequestURI)
	return r.WithContext(ctx), nil
}

// peer is the address that Envoy takes for its client's.
func peer(a *core.Address) (netip.Addr, error) {
	text := a.GetSocketAddress().GetAddress()
	if text == "" {
		return netip.Addr{}, errors.New("has no socket_address, want the client's")
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, errors.New("is no address")
	}
	return addr, nil
}

// header returns the fields of a request. With encode_raw_headers they come as
// they were; else Envoy joins the lines of a field by commas.
func header(about *auth.AttributeContext_HttpRequest) http.Header {
	h := make(http.Header, len(about.GetHeaders())+len(about.GetHeaderMap().GetHeaders()))
	add := func(name, value string) {
		if name != "" && name[0] != ':' {
			name = http.CanonicalHeaderKey(name)
			h[name] = append(h[name], value)
		}
	}
	for _, f := range about.GetHeaderMap().GetHeaders() {
		value := f.GetValue()
		if value == "" {
			value = string(f.GetRawValue())
		}
		add(f.GetKey(), value)
	}
	if about.GetHeaderMap() == nil {
		for name, value := range about.GetHeaders() {
			add(name, value)
		}
	}
	return h
}

// answer collects what a handler says.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = make(http.Header, 8)
	}
	return a.header
}

func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// reply says the same to Envoy.
func (a *answer) reply() *auth.CheckResponse {
	fields := make([]*core.HeaderValueOption, 0, len(a.header))
	for name, lines := range a.header {
		if name == "Content-Length" { // which Envoy writes
			continue
		}
		for i, value := range lines {
			action := core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
			if i == 0 && name != "Access-Control-Expose-Headers" { // the API may name its own
				action = core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
			}
			fields = append(fields, &core.HeaderValueOption{
				Header:       &core.HeaderValue{Key: strings.ToLower(name), Value: value},
				AppendAction: action,
			})
		}
	}
	if a.status == http.StatusOK {
		return &auth.CheckResponse{
			Status: &status.Status{Code: int32(codes.OK)},
			HttpResponse: &auth.CheckResponse_OkResponse{
				OkResponse: &auth.OkHttpResponse{ResponseHeadersToAdd: fields}},
		}
	}
	return &auth.CheckResponse{
		Status: &status.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status: &httpstatus.HttpStatus{Code: httpstatus.StatusCode(a.status)}, Headers: fields,
			Body: a.body.String(),
		}},
	}
}
