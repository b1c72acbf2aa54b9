package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// asker asks a service that speaks Envoy's protocol of rate limits (envoy.service.ratelimit.v3,
// ShouldRateLimit): gRPC in the clear, of which one call needs no more than a few bytes of framing.
type asker struct {
	client *http.Client
	url    string
}

func newAsker(address string) *asker {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return &asker{&http.Client{Transport: t},
		"http://" + address + "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"}
}

// domain is the one that the service is configured for.
const domain = "eval"

// allowed asks for one hit of a descriptor with one entry.
func (a *asker) allowed(key, value string) (bool, error) {
	request, err := http.NewRequest(http.MethodPost, a.url, bytes.NewReader(question(key, value)))
	if err != nil {
		return false, err
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	response, err := a.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	if status := response.Trailer.Get("Grpc-Status"); status != "0" {
		return false, fmt.Errorf("ShouldRateLimit: status %q, %s%s", status, response.Header.Get("Grpc-Message"),
			response.Trailer.Get("Grpc-Message"))
	}
	return verdict(answer)
}

// question is a framed RateLimitRequest: a domain, and one descriptor with one entry.
func question(key, value string) []byte {
	entry := bytesField(bytesField(nil, 1, key), 2, value)
	message := bytesField(bytesField(nil, 1, domain), 2, string(bytesField(nil, 1, string(entry))))
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(frame, message...)
}

// bytesField appends a field of bytes, as the encoding of Protocol Buffers wants it.
func bytesField(b []byte, number byte, value string) []byte {
	b = binary.AppendUvarint(append(b, number<<3|2), uint64(len(value)))
	return append(b, value...)
}

var errNoVerdict = errors.New("ShouldRateLimit: the answer does not begin with a code")

// verdict reads the code of an answer, its first field: 1 is OK and 2 is over the limit.
func verdict(answer []byte) (bool, error) {
	const frame = 5
	if len(answer) < frame+2 || answer[frame] != 1<<3 {
		return false, errNoVerdict
	}
	switch code := answer[frame+1]; code {
	case 1:
		return true, nil
	case 2:
		return false, nil
	default:
		return false, fmt.Errorf("ShouldRateLimit: code %d, want 1 or 2", code)
	}
}
