package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/headgate-io/headgate/eval/harness"
)

// RedisCell is where the module of Redis is, which scripts/install-redis-cell builds.
func RedisCell() (string, error) {
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "bin", "redis-cell.so")
	if _, err := os.Stat(module); err != nil {
		return "", fmt.Errorf("redis-cell is not there: make deps builds it: %w", err)
	}
	return module, nil
}

// Redis starts a server that keeps nothing on disk, with redis-cell in it.
func Redis(dir string) (*Server, error) {
	module, err := RedisCell()
	if err != nil {
		return nil, err
	}
	path, err := program("redis-server")
	if err != nil {
		return nil, err
	}
	at, err := Address()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port(at), "--save", "", "--appendonly", "no", "--dir",
		dir, "--loadmodule", module)
	return launch(cmd, "redis-server", at, at)
}

// Cell asks a Redis with redis-cell, as a program does that has a client of Redis and nothing else.
type Cell struct{ client rueidis.Client }

// NewCell connects to it.
func NewCell(at string) (*Cell, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{at}, DisableCache: true,
		ForceSingleClient: true})
	return &Cell{client}, err
}

// Close ends the connection.
func (c *Cell) Close() { c.client.Close() }

// Allowed takes a token of a key.
func (c *Cell) Allowed(ctx context.Context, key string, l Limit) (bool, error) {
	answer, err := c.client.Do(ctx, c.client.B().Arbitrary("CL.THROTTLE").Keys(key).
		Args(strconv.FormatInt(l.Burst-1, 10), strconv.FormatInt(l.Rate, 10), "1").Build()).AsIntSlice()
	if err != nil || len(answer) != 5 {
		return false, fmt.Errorf("CL.THROTTLE answers %v: %w", answer, err)
	}
	return answer[0] == 0, nil
}
