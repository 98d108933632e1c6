// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/parts"
)

// selinuxEnv makes the machine boot with SELinux, enforcing.
const selinuxEnv = "JACKFIELD_VM_SELINUX"

// isSELinux reports whether the machine has SELinux in place of AppArmor.
func isSELinux() bool { return os.Getenv(selinuxEnv) == "1" }

// policyVersion is the newest version of policies that Linux 6.12 reads.
const policyVersion = "33"

// harnessRules are rules for the tests themselves: they and the OCI runtime run in the domains of the first process and of
// the kernel, and Jackfield in that of privileged containers. These domains are never denied anything. The first one is
// the other side of a container's standard output.
const harnessRules = `(typepermissive init_t)
(typepermissive kernel_t)
(typepermissive spc_t)
(allow container_t init_t (fd (use)))
(allow container_t init_t (fifo_file (read write getattr append ioctl)))
`

// serviceRule is the rule of docs/how-to/install-distributions.md for sockets of a service.
const serviceRule = `(allow container_t initrc_t (unix_stream_socket (connectto)))
`

// policies are two of Debian's policy, without and with serviceRule.
var policies = map[string]string{"policy": harnessRules, "policy-service": harnessRules + serviceRule}

// buildPolicies compiles Debian's policy, unless the cache has it, and returns the files by name.
func buildPolicies(ctx context.Context, store *parts.Store, cache string, logf func(string, ...any)) (map[string]string, error) {
	// The policy needs newer tools than those of the other packages, and these need their C library.
	pkgs := packages("forky", "selinux-policy-default policycoreutils secilc libsepol2 libc6")
	got, err := store.Ensure(ctx, pkgs...)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "selinux-"+keyOf(got, harnessRules, serviceRule, policyVersion))
	err = parts.Once(ctx, dir, logf, func(tmp string) error {
		logf("compiling the policy of SELinux, once")
		return compilePolicies(ctx, got, tmp)
	})
	files := map[string]string{}
	for name := range policies {
		files[name] = filepath.Join(dir, name)
	}
	return files, err
}

func compilePolicies(ctx context.Context, got []parts.Unpacked, dir string) error {
	policy, utils, secilc, libsepol, libc := got[0], got[1], got[2], got[3], got[4]
	const libraries = "usr/lib/x86_64-linux-gnu"
	tool := func(program string, args ...string) error {
		return run(ctx, libc.Path(libraries+"/ld-linux-x86-64.so.2"),
			append([]string{"--library-path", libc.Path(libraries) + ":" + libsepol.Path(libraries), program}, args...)...)
	}
	modules, err := filepath.Glob(policy.Path("usr/share/selinux/default/*.pp.bz2"))
	if err != nil {
		return err
	}
	work := filepath.Join(dir, "work")
	defer os.RemoveAll(work)
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	var texts []string
	for _, module := range modules {
		binary := filepath.Join(work, strings.TrimSuffix(filepath.Base(module), ".bz2"))
		text := strings.TrimSuffix(binary, ".pp") + ".cil"
		if err := errors.Join(decompress(module, binary), tool(utils.Path("usr/libexec/selinux/hll/pp"), binary, text), os.Remove(binary)); err != nil {
			return err
		}
		texts = append(texts, text)
	}
	for name, rules := range policies {
		own := filepath.Join(work, name+".own.cil")
		if err := os.WriteFile(own, []byte(rules), 0o644); err != nil {
			return err
		}
		args := append([]string{"-m", "-M", "true", "-N", "-c", policyVersion, "-o", filepath.Join(dir, name), "-f", "/dev/null", own}, texts...)
		if err := tool(secilc.Path("usr/bin/secilc"), args...); err != nil {
			return err
		}
	}
	return nil
}

func decompress(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(bzip2.NewReader(in))
	return errors.Join(err, out.Close())
}

// startSELinux loads the policy and makes SELinux enforce it.
func startSELinux() error {
	const fs = "/sys/fs/selinux"
	if err := unix.Mount("selinuxfs", fs, "selinuxfs", 0, ""); err != nil {
		return fmt.Errorf("mount selinuxfs: %w", err)
	}
	return errors.Join(loadPolicy("policy"), os.WriteFile(fs+"/enforce", []byte("1"), 0))
}

// loadPolicy loads a policy of policies into the kernel.
func loadPolicy(name string) error {
	data, err := os.ReadFile("/share/bin/" + name)
	if err != nil {
		return err
	}
	return os.WriteFile("/sys/fs/selinux/load", data, 0)
}

// setLabels labels a directory and everything below it on its file system.
func setLabels(dir, label string) error {
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = unix.Lsetxattr(path, "security.selinux", []byte(label), 0)
		}
		if err != nil {
			return fmt.Errorf("label %s: %w", path, err)
		}
		return nil
	})
}

// kernelLog returns the kernel's messages, with the denials of SELinux.
func kernelLog(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "dmesg").CombinedOutput()
	return string(out)
}
