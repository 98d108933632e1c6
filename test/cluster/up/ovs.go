// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	ispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/jackfield/jackfield/test/cluster"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

//go:embed ovs.yaml
var ovsManifest string

// dpdkArchive is the name of the archive with the image of Open vSwitch and testpmd, in the cluster's directory.
const dpdkArchive = "dpdk.tar"

// writeDPDKImage fetches DPDK and Open vSwitch, and writes an image with their programs and those of the test image.
func writeDPDKImage(ctx context.Context, dir string, kit *cluster.Kit) error {
	store, err := parts.Open()
	if err != nil {
		return err
	}
	store.Logf = logf
	packages, err := store.Ensure(ctx, append(parts.DPDK(), parts.OVS()...)...)
	if err != nil {
		return err
	}
	files, err := node.TestFiles(kit.Node, "ping")
	if err != nil {
		return err
	}
	for _, pkg := range packages {
		for name, err := range dpdk.Files(pkg.Dir) {
			if err != nil {
				return err
			}
			file, err := readFile(pkg.Dir, name)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
	}
	f, err := os.Create(filepath.Join(dir, dpdkArchive))
	if err != nil {
		return err
	}
	image := node.NewLayout(f)
	image.Image("localhost/jackfield/dpdk:latest", ispec.ImageConfig{Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}, files)
	return errors.Join(image.Close(), f.Close())
}

// readFile returns a file of an unpacked package as an entry of an image.
func readFile(pkg, name string) (node.File, error) {
	path := filepath.Join(pkg, name)
	if link, err := os.Readlink(path); err == nil {
		return node.File{Name: name, Link: link}, nil
	}
	data, err := os.ReadFile(path)
	return node.File{Name: name, Mode: 0o755, Data: data}, err
}

// addOVS runs Open vSwitch in a pod of the node, and waits for its bridge.
func addOVS(ctx context.Context, dir string, c *cluster.Cluster) error {
	logf("starting Open vSwitch")
	if err := c.FirstNode().ImportImages(ctx, filepath.Join(dir, dpdkArchive)); err != nil {
		return err
	}
	if err := c.Create(ctx, ovsManifest); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "-n", "openvswitch", "rollout", "status", "daemonset/openvswitch", "--timeout=3m")
	if err != nil {
		log, _ := c.Kubectl(ctx, "-n", "openvswitch", "logs", "daemonset/openvswitch")
		return fmt.Errorf("%w\n%s", err, log)
	}
	return nil
}

// ovsGuide names the page that uses Open vSwitch.
const ovsGuide = `Open vSwitch runs on the node with DPDK's datapath, and docs/tutorials/dpdk-packets.md gives a pod a port on it:

  kubectl -n openvswitch exec ds/openvswitch -- ovs-vsctl show

`
