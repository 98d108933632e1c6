// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/deploy/artifact"
)

const checkout = "../.."

func build(t *testing.T, env map[string]string, args ...string) map[string][]byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	args = append([]string{"-C", checkout, "-o", out, "-platforms", "linux/" + runtime.GOARCH}, args...)
	if err := run(t.Context(), args, func(k string) string { return env[k] }, io.Discard); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"": data}
	for _, e := range untar(t, data) {
		files[e.Name] = e.data
	}
	return files
}

type entry struct {
	*tar.Header
	data []byte
}

func untar(t *testing.T, data []byte) []entry {
	t.Helper()
	var all []entry
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{h, content})
	}
}

// readBlob reads the blob of a descriptor and checks its digest and size.
func readBlob[T any](t *testing.T, files map[string][]byte, d artifact.Descriptor) T {
	t.Helper()
	data := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if artifact.Digest(data) != d.Digest || len(data) != d.Size {
		t.Fatalf("blob %s has the digest %s and %d bytes, want %d", d.Digest, artifact.Digest(data), len(data), d.Size)
	}
	var v T
	if raw, ok := any(&v).(*[]byte); ok {
		*raw = data
		return v
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestImageHasValidLayout(t *testing.T) {
	env := map[string]string{"SOURCE_DATE_EPOCH": "1700000000"}
	files := build(t, env, "-version", "1.2.3+x", "-revision", "abc")

	t.Setenv("TMPDIR", t.TempDir())
	if again := build(t, env, "-version", "1.2.3+x", "-revision", "abc"); !bytes.Equal(files[""], again[""]) {
		t.Error("the same flags produced other bytes")
	}

	var top artifact.Index
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json: %v, %v", err, top)
	}
	if name := top.Manifests[0].Annotations["io.containerd.image.name"]; name != "localhost/jackfield/jackfield:1.2.3_x" {
		t.Errorf("the image is called %q", name)
	}
	platforms := readBlob[artifact.Index](t, files, top.Manifests[0])
	if len(platforms.Manifests) != 1 || *platforms.Manifests[0].Platform != (artifact.Platform{Architecture: runtime.GOARCH, OS: "linux"}) {
		t.Fatalf("the platforms are %+v", platforms.Manifests)
	}
	m := readBlob[artifact.Manifest](t, files, platforms.Manifests[0])
	img := readBlob[artifact.Image](t, files, m.Config)
	if img.Created != "2023-11-14T22:13:20Z" || img.Config.User != "0:0" || img.Config.Labels["org.opencontainers.image.revision"] != "abc" {
		t.Errorf("the configuration is %+v", img)
	}
	checkLayer(t, readBlob[[]byte](t, files, m.Layers[0]), img.RootFS.DiffIDs[0])
}

// checkLayer checks that the layer has all commands, statically linked, and no other executable.
func checkLayer(t *testing.T, compressed []byte, diffID string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if artifact.Digest(plain) != diffID {
		t.Errorf("the layer's digest is %s, and the configuration has %s", artifact.Digest(plain), diffID)
	}
	var commands []string
	licensed := false
	for _, e := range untar(t, plain) {
		if e.Uid != 0 || e.Gid != 0 || e.Uname != "" || e.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: of %d:%d %q, %v", e.Name, e.Uid, e.Gid, e.Uname, e.ModTime)
		}
		if e.Name == "usr/share/licenses/jackfield/THIRD_PARTY_LICENSES" {
			licensed = bytes.Contains(e.data, []byte("\nGo ")) && bytes.Contains(e.data, []byte("\ngithub.com/containerd/nri v"))
		}
		if e.Name == "var/run" && e.Linkname != "../run" {
			t.Errorf("var/run leads to %q", e.Linkname)
		}
		if e.Typeflag != tar.TypeReg || e.FileInfo().Mode()&fs.ModePerm&0o111 == 0 {
			continue
		}
		commands = append(commands, strings.TrimPrefix(e.Name, "usr/bin/"))
		exe, err := elf.NewFile(bytes.NewReader(e.data))
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if slices.ContainsFunc(exe.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s needs a dynamic linker", e.Name)
		}
	}
	if !licensed {
		t.Error("the image has not the licences of what is in it")
	}
	var want []string
	dirs, err := filepath.Glob(filepath.Join(checkout, "cmd", "*", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		want = append(want, filepath.Base(filepath.Dir(d)))
	}
	if !slices.Equal(commands, want) {
		t.Errorf("the commands are %q, want %q", commands, want)
	}
}

func TestInvalidFlagsAreRejected(t *testing.T) {
	for name, args := range map[string][]string{
		"--platforms": {"-platforms", "plan9/amd64"}, "argument": {"x"}, "flag": {"-nope"},
	} {
		args := append([]string{"-o", filepath.Join(t.TempDir(), "x")}, args...)
		if err := run(t.Context(), args, func(string) string { return "" }, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run(t.Context(), nil, func(string) string { return "today" }, io.Discard); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("got %v", err)
	}
}
