// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/kit"
	"github.com/jackfield/jackfield/test/parts"
)

// programsEnv carries what was prepared into the jail.
const programsEnv = "JACKFIELD_TENANT_KIT"

// programs are the directories with what containers run.
type programs struct {
	Samples string   // of kit.WriteSamples
	Python  []string // unpacked packages
}

func TestMain(m *testing.M) { e2e.MainWith(m, "kit", prepare, nil) }

// prepare fetches Python and builds the samples, outside of the jail. They are static, because the containers' image
// has no C library.
func prepare(ctx context.Context) error {
	store, err := parts.Open()
	if err != nil {
		return err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "kit: "+format+"\n", args...) }
	python, err := store.Ensure(ctx, parts.Python()...)
	if err != nil {
		return err
	}
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	p := programs{Samples: filepath.Join(cache, "bin", "kit")}
	for _, u := range python {
		p.Python = append(p.Python, u.Dir)
	}
	if err := os.MkdirAll(p.Samples, 0o755); err != nil {
		return err
	}
	if err := kit.WriteSamples(ctx, p.Samples, "-static"); err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.Setenv(programsEnv, string(data))
}

func readPrograms(t *testing.T) programs {
	t.Helper()
	e2e.Require(t)
	var p programs
	if err := json.Unmarshal([]byte(os.Getenv(programsEnv)), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
