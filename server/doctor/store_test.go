package doctor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/doctor"
)

func TestStore(t *testing.T) {
	s := newSite(t)
	server := redistest.Start(t, "--requirepass", "open sesame")
	s.conf.Store.Redis = []string{server.Socket}
	s.conf.Store.SecretFile = s.write("names", strings.Repeat("ab", 32)+"\n")
	s.conf.Store.PasswordFile = s.write("password", "open sesame\n")
	for _, setting := range []string{"store.redis", "store.secret_file", "store.password_file", "store.tls.enabled"} {
		s.lacks(setting)
	}
	s.want(doctor.Options{}, "store.redis", doctor.OK, server.Socket)

	s.conf.Store.PasswordFile = s.write("password", "wrong-password-of-ours\n")
	s.want(doctor.Options{}, "store.redis", doctor.Failure, "want the user and the password that the server has")
	for _, f := range doctor.Configuration(t.Context(), s.conf, doctor.Options{Now: now}).Findings {
		if strings.Contains(f.Wrong+f.Value+f.Set, "wrong-password-of-ours") {
			t.Errorf("the password is in %+v", f)
		}
	}
	s.conf.Store.PasswordFile = s.write("password", "\n")
	s.want(doctor.Options{}, "store.redis", doctor.Failure, "is empty, want the password")
	s.conf.Store.PasswordFile = s.write("password", "open sesame\n")
	if err := os.Chmod(s.conf.Store.PasswordFile, 0o644); err != nil {
		t.Fatal(err)
	}
	s.want(doctor.Options{}, "store.password_file", doctor.Failure, "others may read it")
	s.conf.Store.Redis = []string{"192.0.2.1:6379"}
	s.want(doctor.Options{}, "store.tls.enabled", doctor.Note, "reads its password")

	s.conf.Store.Redis, s.conf.Store.PasswordFile = []string{"127.0.0.1:1"}, ""
	s.want(doctor.Options{}, "store.redis", doctor.Failure, "each rule do as its on_store_loss says")
	evicts := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	s.conf.Store.Redis = []string{evicts.Socket}
	s.want(doctor.Options{}, "store.redis", doctor.Failure, "maxmemory-policy is allkeys-lru")

	s.conf.Store.SecretFile = s.write("names", strings.Repeat("ab", 32)+"\nprevious "+strings.Repeat("cd", 32)+"\n")
	s.want(doctor.Options{}, "store.secret_file", doctor.Failure, "holds two secrets, want one")
	s.conf.Store.SecretFile = s.dir + "/nothing"
	s.want(doctor.Options{}, "store.secret_file", doctor.Failure,
		"which does not exist, want a file that is the same for all gateways")
	s.conf.Store.SecretFile = ""
	s.want(doctor.Options{}, "store.secret_file", doctor.Note,
		"when API keys get a new secret, every bucket is full again")
	s.conf.Store.Redis = []string{"a:1", "b:1"}
	s.want(doctor.Options{}, "configuration", doctor.Failure, `store.redis is "a:1, b:1", want one server`)
}

// Every file of secrets that others may read is a failure, whichever setting names it.
func TestSecretFilesOfOthers(t *testing.T) {
	s := newSite(t)
	readable := func(name, text string) string {
		path := s.write(name, text)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s.conf.DB, s.conf.Database.PasswordFile = "postgres://headgate@127.0.0.1:1/headgate",
		readable("db.password", "open sesame\n")
	s.conf.SecretFile, s.conf.AdminTokenFile = readable("secret", strings.Repeat("ab", 32)),
		readable("admin.token", strings.Repeat("cd", 32))
	s.conf.Tokens.SecretFiles = []string{readable("token.secret", strings.Repeat("e", 64))}
	s.conf.Tokens.Algorithms, s.conf.Tokens.Issuer, s.conf.Tokens.Audiences = []string{"HS256"},
		"https://issuer.example", []string{"api"}
	s.conf.Store.Redis, s.conf.Store.SecretFile = []string{"127.0.0.1:1"}, readable("names", strings.Repeat("ab", 32))
	s.conf.Store.PasswordFile = readable("store.password", "open sesame\n")
	files := s.conf.SecretFiles()
	if len(files) != 6 {
		t.Fatalf("the configuration names %v, want 6 files", files)
	}
	for _, f := range files {
		s.want(doctor.Options{}, f.Setting, doctor.Failure, "has mode 0644: others may read it")
	}
}
