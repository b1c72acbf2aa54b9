package paramname_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/paramname"
)

func TestAlike(t *testing.T) {
	for _, tt := range []struct {
		want         string
		alike, apart string // names, separated by spaces that stand for nothing; ~ is a space
	}{
		{
			"action",
			"Action [action] [action]x [action]z[0] [action]. [[action]] []action ]action action] action[] " +
				"action[0] action[x]y action]x .action action.x action.x[0] ~action action~ action\x00x",
			"actions x[action] act action2 reaction a.ction",
		},
		{"api_key", "api.key api~key api[key [api.key] [api_key]x", "apikey x[api_key] api[key]"},
		{"user[email]", "user user[] [user] [user]x[email] [user]x user[email] user[email]x user[email][0] " +
			"user][email] user[[email]] user[password user[~email] USER[Email]", "user[password] users[email] email"},
		{"user.email", "user_email user~email user[email] user user.email.x", "user.password user[password] x.user"},
	} {
		for _, list := range []struct {
			names string
			want  bool
		}{{tt.alike, true}, {tt.apart, false}} {
			for name := range strings.SplitSeq(list.names, " ") {
				name = strings.ReplaceAll(name, "~", " ")
				if got := paramname.Alike([]byte(name), []byte(tt.want)); got != list.want {
					t.Errorf("Alike(%q, %q) = %v, want %v", name, tt.want, got, list.want)
				}
			}
		}
	}
}

func TestAlikeAllocatesNothing(t *testing.T) {
	name, want := []byte(strings.Repeat("[", 100)+"user.name]x[0]"), []byte("user_name")
	if n := testing.AllocsPerRun(100, func() { paramname.Alike(name, want) }); n != 0 {
		t.Errorf("Alike allocates %v times, want 0", n)
	}
}
