// SPDX-License-Identifier: Apache-2.0

package named_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/hostsocket"
	"github.com/jackfield/jackfield/test/ovs"
	"github.com/jackfield/jackfield/test/parts"
)

// kitEnv carries what was prepared into the jail.
const kitEnv = "JACKFIELD_HOSTSOCKET"

type kit struct {
	Client  string // the command hostsocket
	Storage hostsocket.Storage
}

func TestMain(m *testing.M) { e2e.MainWith(m, "named", prepare, nil) }

// prepare fetches the servers and builds the client, outside of the jail.
func prepare(ctx context.Context) error {
	storage, err := hostsocket.PrepareStorage(ctx)
	if err != nil {
		return err
	}
	if err := ovs.Prepare(); err != nil {
		return err
	}
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	bin := filepath.Join(cache, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin+"/", "./hostsocket/cmd/hostsocket")
	cmd.Dir = filepath.Join(root, "test")
	// The link is made on the target's file system, so that it is renamed into place.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOTMPDIR="+cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build hostsocket: %w\n%s", err, out)
	}
	data, err := json.Marshal(kit{Client: filepath.Join(bin, "hostsocket"), Storage: storage})
	if err != nil {
		return err
	}
	return os.Setenv(kitEnv, string(data))
}

func readKit(t *testing.T) kit {
	t.Helper()
	e2e.Require(t)
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil {
		t.Fatal(err)
	}
	return k
}
