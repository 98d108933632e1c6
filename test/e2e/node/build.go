// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/jackfield/jackfield/test/parts"
)

const containerdModule = "github.com/containerd/containerd/v2"

// buildContainerd builds V24 from the module proxy, with the versions in the go.mod of dir.
func (k *Kit) buildContainerd(ctx context.Context, dir, cache string, logf func(format string, args ...any)) error {
	programs := parts.Programs{
		Name: "containerd", Dir: dir, Module: containerdModule,
		// Snapshotters that tests do not use.
		Tags:    "no_btrfs,no_devmapper,no_zfs",
		Ldflags: func(version string) string { return "-s -w -X " + containerdModule + "/version.Version=" + version },
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		programs.Packages = append(programs.Packages, containerdModule+"/cmd/"+name)
	}
	bin, version, err := programs.Build(ctx, cache, logf)
	if err != nil {
		return err
	}
	k.Containerd[V24], k.Versions[V24] = bin, version
	return nil
}

const crioModule = "github.com/cri-o/cri-o"

// buildCRIO builds CRI-O from the module proxy, with the versions in the go.mod of dir. Without cgo it has no support
// of seccomp and AppArmor, which the tests do not use.
func (k *Kit) buildCRIO(ctx context.Context, dir, cache string, logf func(format string, args ...any)) error {
	bin, version, err := parts.Programs{
		Name: "crio", Dir: dir, Module: crioModule, Packages: []string{crioModule + "/cmd/crio"},
		Tags: "containers_image_openpgp,exclude_graphdriver_btrfs,btrfs_noversion",
	}.Build(ctx, cache, logf)
	if err != nil {
		return err
	}
	k.CRIO.Bin = bin
	k.Versions[CRIO], k.Versions[CRIOCrun] = version, version
	return nil
}
