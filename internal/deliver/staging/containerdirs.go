// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// containerDirs is the directories of all containers, and how sockets get into them.
type containerDirs struct {
	host   hostfs.Root
	dir    string // as a path of this process
	wanted Mode   // Options.Mode
	shared bool   // Options.Shared
	status Status
}

// placePath returns the path of a place in a container's directory.
func (cd *containerDirs) placePath(containerID, at string) string {
	return filepath.Join(cd.dir, containerID, at)
}

func (cd *containerDirs) stagingError(c *edit.Container, err error) error {
	return fmt.Errorf("stage container %q in state directory %q: %w", c.ID, filepath.Dir(cd.dir), err)
}

// chooseMode chooses the mode, prepares the directory for it and records it in a file. The lock is held: no other
// process mounts or unmounts meanwhile.
func (cd *containerDirs) chooseMode(file string) error {
	switch want := cd.wanted; want {
	case ModeDirectory:
		cd.status = Status{Mode: ModeDirectory, Reason: ReasonConfigured, Detail: "the configuration asks for it"}
	case ModeAuto, ModeMount, "":
		err := cd.makeSharedMount()
		if err != nil && want == ModeMount {
			return fmt.Errorf("stage sockets as mounts: %w", err)
		}
		cd.status = Status{Mode: ModeMount}
		if err != nil {
			cd.status = Status{Mode: ModeDirectory, Reason: ReasonUnavailable, Detail: diag.ErrorText(err)}
		}
	default:
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(
			"stage sockets: invalid mode %q: must be auto, mount or directory", want))
	}
	data, err := json.Marshal(cd.status)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(file); err == nil && string(old) == string(data) {
		return nil
	}
	return hostfs.ReplaceFile(file, data, viewFile)
}

// makeSharedMount makes the directory of all containers a shared mount. The error says why
// mounts made in it would not reach containers.
func (cd *containerDirs) makeSharedMount() error {
	if !cd.host.IsLive() && cd.wanted != ModeMount {
		return errdefs.ErrFailedPrecondition.WithMessage("host paths are taken below " + cd.host.Dir())
	}
	dir := cd.dir
	around, on, err := hostfs.FindMount(dir)
	if err != nil {
		return err
	}
	if !around.Shared {
		if err := checkHostMountNamespace(); err != nil {
			return fmt.Errorf("%w, and %s is not shared with the host: "+
				"mount the state directory with mountPropagation Bidirectional", err, around.Point)
		}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	// The clone is in no peer group, so that it gets one of its own. In the peer group of the
	// file system around it, each mount would appear twice.
	tree, err := cloneMount(fd, 0)
	if err != nil {
		return privilegeError("make a mount (Linux 5.12 is needed)", err)
	}
	defer unix.Close(tree)
	if on == nil {
		if err := attachMount(tree, dir, 0); err != nil {
			return privilegeError("bind "+dir+" on itself", err)
		}
	}
	if on == nil && !around.Shared || on != nil && !on.Shared {
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return privilegeError("make "+dir+" a shared mount", err)
		}
	}
	return nil
}

// ensureSharedMount makes the shared mount again, after the process that removed the last
// container unmounted it. The lock is held.
func (cd *containerDirs) ensureSharedMount() error {
	if !cd.shared || cd.status.Mode != ModeMount || isMountRoot(cd.dir) {
		return nil
	}
	if err := cd.makeSharedMount(); err != nil {
		return fmt.Errorf("stage sockets as mounts: %w", err)
	}
	return nil
}

// createEntries creates the container's directory with its directories and files. again means that an
// earlier call did so: its mounts are removed first. The lock is held.
func (cd *containerDirs) createEntries(c *edit.Container, again bool) error {
	if err := cd.ensureSharedMount(); err != nil {
		return err
	}
	if again {
		if err := cd.unmountAll(c); err != nil {
			return err
		}
	}
	if err := cd.create(c, nil); err != nil {
		return err
	}
	for _, f := range c.Files {
		// Nobody reads it before the container exists.
		if err := hostfs.CreateFile(filepath.Join(cd.dir, c.ID, f.Name), f.Data, viewFile); err != nil {
			return err
		}
	}
	return nil
}

// create creates the container's directory and the directories in it, as far as they are missing, and
// mounts the scratch directories that the container does not have yet.
func (cd *containerDirs) create(c *edit.Container, have []edit.Dir) error {
	containers, err := unix.Open(cd.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: cd.dir, Err: err}
	}
	defer unix.Close(containers)
	dir, err := makeDir(containers, cd.dir, c.ID)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for _, fd := range []int{containers, dir} {
		if err := setLabel(fd, c.Label); err != nil {
			return err
		}
	}
	for _, d := range c.Dirs {
		fd, err := makeDir(dir, filepath.Join(cd.dir, c.ID), d.Path)
		if err == nil {
			err = setLabel(fd, c.Label)
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
		if d.Scratch && cd.status.Mode == ModeMount && !slices.Contains(have, d) {
			if err := mountScratch(c, filepath.Join(cd.dir, c.ID), d.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// setLabel sets the SELinux label of a directory, if one is configured and SELinux is on. A container that may not read
// a directory cannot list or watch it. Files in it inherit the label.
func setLabel(fd int, label string) error {
	if label == "" || !hostfs.SELinuxEnabled() {
		return nil
	}
	if err := hostfs.SetSELinuxLabel(fd, label); err != nil {
		return fmt.Errorf("set the SELinux label of a container's directory to %q: %w", label, err)
	}
	return nil
}

// bindSocket binds the socket of a descriptor at all its places, in place of an older one. A socket
// that is awaited has the descriptor -1, and placeholders. In ModeDirectory every socket has
// placeholders: the runtime mounts on them. The lock is held.
func (cd *containerDirs) bindSocket(c *edit.Container, k *edit.Socket, fd int) error {
	dir := filepath.Join(cd.dir, c.ID)
	for _, at := range k.At {
		target := filepath.Join(dir, at)
		if err := createPlaceholder(target); err != nil {
			return err
		}
		if fd < 0 || cd.status.Mode != ModeMount {
			continue
		}
		if err := bindFD(fd, target, restrictedAttrs|unix.MOUNT_ATTR_RDONLY); err != nil {
			return edit.WithOrigin(k.From, err)
		}
	}
	return nil
}

// unmountAll unmounts everything in a container's directory that its record names. Without staged
// mounts there is nothing.
func (cd *containerDirs) unmountAll(c *edit.Container) error {
	if cd.status.Mode != ModeMount {
		return nil
	}
	dir := filepath.Join(cd.dir, c.ID)
	var errs []error
	for _, p := range mountPoints(c) {
		errs = append(errs, unmountStack(filepath.Join(dir, p)))
	}
	return errors.Join(errs...)
}

// removeTree removes a container's directory. A mount that no record names is unmounted and
// never entered: it has files of the host.
func (cd *containerDirs) removeTree(containerID string) error {
	dirfd, err := unix.Open(cd.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: cd.dir, Err: err}
	}
	defer unix.Close(dirfd)
	err = hostfs.RemoveTreeAt(dirfd, containerID)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := unmountBelow(dirfd, containerID); err != nil {
		return err
	}
	return hostfs.RemoveTreeAt(dirfd, containerID)
}

// finishInterruptedSwaps unmounts the old mounts of a process that was killed between
// mountBeneath and unmountTop. The rebinder calls it once, before it begins, with the lock held.
func (cd *containerDirs) finishInterruptedSwaps() error {
	containers, err := filepath.EvalSymlinks(cd.dir) // as mountinfo has it
	if err != nil {
		return err
	}
	failed := map[string]bool{}
	var errs []error
	for {
		mounts, err := hostfs.Mounts()
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		// The lowest mount is the newest. An unmount also reaches other places, so that the mounts are read again.
		point := coveredPlace(mounts, containers, failed)
		if point == "" {
			return errors.Join(errs...)
		}
		if err := unmountTop(point); err != nil {
			failed[point] = true
			errs = append(errs, err)
		}
	}
}

// makeDir opens a directory below an open one, whose path is base. It creates the directory and its parents if they are
// missing, with the mode that a container needs whatever the umask. It follows no symlink.
func makeDir(dirfd int, base, rel string) (int, error) {
	at := dirfd
	for elem := range strings.SplitSeq(rel, "/") {
		next, err := hostfs.MkdirAt(at, elem, containerDir)
		if errors.Is(err, unix.EEXIST) {
			next, err = hostfs.OpenatBeneath(at, elem, unix.O_RDONLY|unix.O_DIRECTORY)
		}
		if at != dirfd {
			unix.Close(at)
		}
		if err != nil {
			return -1, &os.PathError{Op: "mkdir", Path: filepath.Join(base, rel), Err: err}
		}
		at = next
	}
	return at, nil
}

// mountPoints returns the places in the staging directory that can have mounts. A place that
// contains others comes before them.
func mountPoints(c *edit.Container) []string {
	var points []string
	for _, d := range c.Dirs {
		if d.Scratch {
			points = append(points, d.Path)
		}
	}
	for _, d := range c.SocketDirs {
		if d.At != "" {
			points = append(points, d.At)
		}
	}
	for _, k := range c.Sockets {
		for _, at := range k.At {
			if !slices.Contains(points, filepath.Dir(at)) {
				points = append(points, at)
			}
		}
	}
	return points
}

// isMountRoot reports whether a path is a mount point. Kernels before 5.8 always say no.
func isMountRoot(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil &&
		st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// unmountBelow unmounts everything in an entry of an open directory, the newest first.
func unmountBelow(dirfd int, name string) error {
	dir, err := os.Readlink(hostfs.DescriptorPath(dirfd)) // as the kernel shows mount points
	if err != nil {
		return err
	}
	mounts, err := hostfs.Mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.Point+"/", filepath.Join(dir, name)+"/") {
			errs = append(errs, unmountStack(m.Point))
		}
	}
	return errors.Join(errs...)
}

// privilegeError wraps an error of a mount operation, and says which privilege it needs.
func privilegeError(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: this needs root with CAP_SYS_ADMIN", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// checkHostMountNamespace returns an error unless the process is in the mount namespace of process 1.
func checkHostMountNamespace() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if first, err := os.Readlink("/proc/1/ns/mnt"); err == nil && first == own && os.Getpid() != 1 {
		return nil
	}
	return errdefs.ErrFailedPrecondition.WithMessage("the process has a mount namespace of its own")
}

// coveredPlace returns a place in a directory with several mounts, "" for none, that is not to be skipped.
func coveredPlace(mounts []hostfs.Mount, dir string, skip map[string]bool) string {
	seen := map[string]bool{}
	for i := range mounts {
		point := mounts[i].Point
		if !strings.HasPrefix(point, dir+"/") || skip[point] {
			continue
		}
		if _, ok := boundSocket(point); seen[point] && ok {
			return point
		}
		seen[point] = true
	}
	return ""
}
