// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/wording"
)

// ofLastDirectory are the transient specs where CDI's libraries write them. In the
// other directories a name of that form says nothing.
func ofLastDirectory(s *cdiregistry.Snapshot) []cdiregistry.Transient {
	last := len(s.Dirs()) - 1
	var out []cdiregistry.Transient
	for _, t := range s.Transients() {
		if t.File.Priority == last {
			out = append(out, t)
		}
	}
	return out
}

// How IDs are written: UIDs of Kubernetes, and IDs of runtimes, of which a list may
// have the beginnings only.
var (
	uidAlone   = lazy(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	uidIn      = lazy(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	runtimeIDs = lazy(`^[0-9a-f]{12,64}$`)
	runtimeID  = lazy(`[0-9a-f]{64}`)
)

// orphans are those from before a time whose owner is not among the IDs. A driver may call a file by
// more than the owner's ID: then the ID is a part of the name.
//
// A list of UIDs says nothing of an owner that is known by another form of ID, and
// neither does one of containers: drivers keep the files of all their claims
// ("base", "common") under such names, too.
func orphans(list []cdiregistry.Transient, alive []string, before time.Time) []cdiregistry.Transient {
	uids, containers, names := false, false, false
	parts := make([]string, len(alive))
	for i, id := range alive {
		id = strings.ToLower(id)
		parts[i] = strings.ReplaceAll(id, "/", "_")
		uid, container := uidAlone().MatchString(id), runtimeIDs().MatchString(id)
		uids, containers, names = uids || uid, containers || container, names || !uid && !container
	}
	var out []cdiregistry.Transient
	for _, t := range list {
		owner := strings.ToLower(t.ID)
		gone := !t.File.ModTime.After(before) && (names || uids && uidIn().MatchString(owner) || containers && runtimeID().MatchString(owner))
		for _, id := range parts {
			gone = gone && !strings.Contains(owner, id)
		}
		if gone {
			out = append(out, t)
		}
	}
	return out
}

// readIDs reads a list of IDs, one a line.
func readIDs(env Env, file string) ([]string, error) {
	f := specFile{spec: file}
	f.standard()
	if err := f.read(env.Stdin); err != nil {
		return nil, fmt.Errorf("read IDs from %q: %w", f.name, err)
	}
	defer f.close()
	var ids []string
	line := 0
	for text := range strings.Lines(string(f.text)) {
		line++
		switch words := strings.Fields(text); len(words) {
		case 0:
		case 1:
			ids = append(ids, words[0])
		default:
			// A table, or what a failed command says, has no owner that lives in it.
			return nil, fmt.Errorf("read IDs from %q: line %d: found %s, want one ID a line: %w", f.name, line, wording.Quote(strings.TrimSpace(text), wording.Most), errdefs.ErrInvalidArgument)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("read IDs from %q: there are none, which would make every owner one that is gone: %w", f.name, errdefs.ErrInvalidArgument)
	}
	return ids, nil
}
