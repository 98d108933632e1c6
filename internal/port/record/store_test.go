// SPDX-License-Identifier: Apache-2.0

package record

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// openTestStore opens a store below a directory of the test, and returns the directory.
func openTestStore(t *testing.T) (store *Store, dir string) {
	t.Helper()
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if store, err := Find(host, DefaultDir); store != nil || err != nil {
		t.Fatalf("a missing directory is found: %v, %v", store, err)
	}
	store, err = Open(host, DefaultDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store, filepath.Join(root, DefaultDir)
}

// recordWithPort returns the record of an attachment with a port.
func recordWithPort(container, ifName string) *Record {
	owner := vswitch.Owner{ContainerID: container, Interface: ifName, Network: "fast", Namespace: "apps", Pod: "p"}
	return &Record{
		Key: Key{Network: "fast", ContainerID: container, Interface: ifName}, Netns: "/run/netns/p", Namespace: "apps", Pod: "p",
		InfoDir: "/d", InfoFile: "apps-fast-" + container + "_" + ifName,
		Info:   &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version, VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: "/s/x"}},
		Switch: "ovs0", ConfigFile: "/etc/jackfield/config.yaml", Port: &vswitch.Port{Name: vswitch.PortName(owner), Owner: owner, Type: vswitch.VhostUser, Socket: "/s/x", Bridge: "br0", MTU: 1500},
	}
}

func TestRecordIsReadAsItWasWritten(t *testing.T) {
	store, _ := openTestStore(t)
	want := recordWithPort("a", "net1")
	if err := store.Create(want); err != nil {
		t.Fatal(err)
	}
	got, err := store.Read(want.Key)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	want.Port.Addresses = []string{"10.0.0.1/24"}
	if err := store.Update(want); err != nil {
		t.Fatal(err)
	}
	if got, err = store.Read(want.Key); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("after Update: %+v, %v; want %+v", got, err, want)
	}
	if err := store.Remove(want.Key); err != nil {
		t.Error(err)
	}
	if got, err := store.Read(want.Key); got != nil || err != nil {
		t.Errorf("after Remove: %+v, %v", got, err)
	}
	if err := store.Remove(want.Key); err != nil {
		t.Errorf("second Remove: %v", err)
	}
}

func TestKeysListsRecordsAndUnfinishedOnesApart(t *testing.T) {
	store, dir := openTestStore(t)
	for _, container := range []string{"b", "a"} {
		if err := store.Create(recordWithPort(container, "net1")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".fast@c@net1.new", "no record", ".other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := store.Keys()
	if want := []Key{{"fast", "a", "net1"}, {"fast", "b", "net1"}}; err != nil || !reflect.DeepEqual(keys, want) {
		t.Errorf("keys %v, %v; want %v", keys, err, want)
	}
	unfinished, err := store.UnfinishedKeys()
	if want := []Key{{"fast", "c", "net1"}}; err != nil || !reflect.DeepEqual(unfinished, want) {
		t.Errorf("unfinished %v, %v; want %v", unfinished, err, want)
	}
}

func TestCreateRefusesSecondRecordOfAnInterface(t *testing.T) {
	store, _ := openTestStore(t)
	if err := store.Create(recordWithPort("a", "net1")); err != nil {
		t.Fatal(err)
	}
	again := recordWithPort("a", "net1")
	again.Network = "other"
	if err := store.Create(again); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), `"fast"`) {
		t.Errorf("another network: %v", err)
	}
	long := recordWithPort("a", "net2")
	long.Network = strings.Repeat("n", 250)
	if err := store.Create(long); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "too long") {
		t.Errorf("long name: %v", err)
	}
}

// A record never leads DEL or the reconciler to another attachment's port.
func TestReadRefusesPortOfAnotherAttachment(t *testing.T) {
	for what, change := range map[string]func(*Record){
		"container":      func(r *Record) { r.Port.Owner.ContainerID = "z" },
		"interface":      func(r *Record) { r.Port.Owner.Interface = "net9" },
		"name":           func(r *Record) { r.Port.Name = "eth0" },
		"without switch": func(r *Record) { r.Switch = "" },
		"without port":   func(r *Record) { r.Port = nil },
	} {
		store, _ := openTestStore(t)
		r := recordWithPort("a", "net1")
		change(r)
		if err := store.Create(r); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Read(r.Key); got != nil || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestOpenRefusesDirectoryThatAllUsersWrite(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if store, err := Open(host, "/state"); store != nil || !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "chmod go-w /state") {
		t.Errorf("%v, %v", store, err)
	}
}
