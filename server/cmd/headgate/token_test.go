package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestTokenVerify holds that the command says which check a token fails,
// prints nothing of it but whose it is, and tells by its exit status.
func TestTokenVerify(t *testing.T) {
	dir := t.TempDir()
	secret := strings.Repeat("s3cr3t! ", 4)
	write(t, dir, "token.secret", secret+"\n")
	conf := write(t, dir, "headgate.yaml",
		`tokens: {secret_files: [token.secret], algorithms: [HS256], issuer: me, audiences: [api], tier_claim: plan}`)
	write(t, dir, "none.yaml", "upstream: http://127.0.0.1:9000\n")
	write(t, dir, "wrong.yaml", "tokens: {secret_files: [token.secret], algorithms: [none]}\n")
	write(t, dir, "lost.yaml",
		strings.Replace(`tokens: {secret_files: [gone], algorithms: [HS256], issuer: me, audiences: [api]}`, "gone",
			"gone.secret", 1))
	t.Chdir(dir)
	token := func(secret, claims string) string {
		encode := base64.RawURLEncoding.EncodeToString
		input := encode([]byte(`{"alg":"HS256"}`)) + "." + encode([]byte(claims))
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(input))
		return input + "." + encode(mac.Sum(nil))
	}
	claims := func(format string) string {
		return fmt.Sprintf(`{"iss":"me","aud":"api","private":"do not print","exp":%d,`+format+`}`,
			time.Now().Unix()+300)
	}
	good := token(secret, claims(`"sub":"alice","plan":"gold"`))
	for name, c := range map[string]struct {
		conf, input, want, stderr string
		code                      int
	}{
		"good":        {conf, good, "signature  ok\n\nsubject  alice\ntier     gold\nuntil ", "", exitOK},
		"in a header": {conf, "Bearer " + good + "\n", "subject  alice", "", exitOK},
		"forged": {conf, token("x", claims(`"sub":"alice"`)), "signature  fails: the signature is wrong\n",
			"the token is not believed", exitFailure},
		"number": {conf, token(secret, claims(`"sub":7`)),
			"subject    fails: the subject is missing or not a text", "not believed", exitFailure},
		"nothing": {conf, "", "form  fails:", "not believed", exitFailure},
		"long": {conf, strings.Repeat("a", 1<<20), "form  fails: the token is longer than 8192 bytes",
			"not believed", exitFailure},
		"no settings":  {"none.yaml", good, "", "tokens is not set", exitUsage},
		"bad settings": {"wrong.yaml", good, "", `tokens.algorithms holds "none"`, exitUsage},
		"no keys":      {"lost.yaml", good, "", "gone.secret: no such file", exitFailure},
	} {
		var out, errs bytes.Buffer
		root := newRoot(&out, &errs)
		root.SetIn(strings.NewReader(c.input))
		root.SetArgs([]string{"token", "verify", "--config", c.conf})
		code, stderr := exitOK, ""
		if err := root.ExecuteContext(context.Background()); err != nil {
			code, stderr = exitFailure, err.Error()
			if _, usage := err.(usageError); usage {
				code = exitUsage
			}
		}
		if code != c.code || !strings.Contains(out.String(), c.want) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: exit %d\n%s%s", name, code, out.String(), stderr)
		}
		for _, hidden := range []string{"do not print", secret, strings.SplitN(good, ".", 3)[2]} {
			if strings.Contains(out.String()+stderr, hidden) {
				t.Errorf("%s: %q is printed", name, hidden)
			}
		}
	}
}
