// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"time"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// temporaryAge is how old what a killed writer left in the device-info directory
// is before it is removed. Writers take milliseconds.
const temporaryAge = 10 * time.Second

// del is DEL (§2): it undoes what ADD did as far as anything is there, and needs
// neither the network namespace nor the previous result.
func (c *call) del() error {
	leased := c.release()
	errs := []error{leased}
	st, err := findStore(c.Host, c.conf.stateDir)
	if err != nil {
		return joinErrors(append(errs, err)...)
	}
	if st != nil {
		defer st.Close()
		errs = append(errs, c.forget(st, recordName(c.conf.name, c.ContainerID, c.IfName), leased != nil))
	}
	errs = append(errs, c.removeTemporary(c.conf.infoDir))
	return joinErrors(errs...)
}

// release has the IPAM plugin take an attachment's addresses back.
func (c *call) release(of ...string) error {
	if c.conf.ipamErr != nil || c.conf.ipam == "" {
		return c.conf.ipamErr
	}
	_, err := c.delegate("DEL", of...)
	return err
}

// forget removes what a record tells of, and then the record. That there is none
// is no error: there is nothing of the attachment then. While the IPAM plugin has
// leased addresses that it did not take back the record stays, by which the next DEL
// or GC asks it again.
func (c *call) forget(st *store, name string, leased bool) error {
	r, err := st.read(name)
	var broken *brokenRecord
	switch {
	case errors.As(err, &broken):
		err = c.removeUnrecorded(name, broken)
	case r != nil:
		err = c.remove(r)
	}
	if err != nil {
		return err
	}
	c.step("removed")
	if leased {
		return nil
	}
	return st.remove(name)
}

// remove removes what an ADD made. Each may be gone already.
func (c *call) remove(r *record) error {
	var errs []error
	if !r.InfoKept {
		err := deviceinfo.CNIDir{Root: c.Host, Dir: r.InfoDir}.Remove(r.InfoFile)
		if err != nil {
			err = fail(codeIO, "I/O failure: device-info", "%v", err)
		}
		errs = append(errs, err)
	}
	c.step("device-info removed")
	errs = append(errs, c.removeClaimedDir(r))
	return joinErrors(errs...)
}

func (c *call) removeTemporary(dir string) error {
	if err := deviceinfo.RemoveTemporary(c.Host, dir, temporaryAge); err != nil {
		return fail(codeIO, "I/O failure: device-info", "%v", err)
	}
	return nil
}

// gc is GC (§2): it removes the attachments of this network that are not among
// the valid ones. What cannot be removed keeps nothing else from it.
func (c *call) gc() error {
	if !c.conf.validGiven {
		return invalid("cni.dev/valid-attachments", "nothing", "the list of the network's attachments that are still valid")
	}
	var errs []error
	if c.conf.ipam != "" {
		_, err := c.delegate("GC")
		errs = append(errs, err)
	}
	st, err := findStore(c.Host, c.conf.stateDir)
	if st == nil {
		return joinErrors(append(errs, err, c.removeTemporary(c.conf.infoDir))...)
	}
	defer st.Close()
	valid := map[string]bool{}
	for _, v := range c.conf.valid {
		valid[recordName(c.conf.name, v.ContainerID, v.IfName)] = true
	}
	names, err := st.names()
	leftovers, err2 := st.leftovers()
	errs = append(errs, err, err2)
	for _, name := range append(names, leftovers...) {
		network, id, ifName, ok := splitRecordName(name)
		if !ok || network != c.conf.name || valid[name] {
			continue
		}
		// Many IPAM plugins do nothing at GC, host-local among them; all know DEL.
		leased := c.release("CNI_CONTAINERID="+id, "CNI_IFNAME="+ifName, "CNI_NETNS=")
		errs = append(errs, leased, c.forget(st, name, leased != nil))
	}
	errs = append(errs, c.releaseUnrecorded(st))
	errs = append(errs, c.removeTemporary(c.conf.infoDir))
	return joinErrors(errs...)
}

// releaseUnrecorded removes the claims of containers that have no record here any more,
// of whatever network: a disk lost it.
func (c *call) releaseUnrecorded(st *store) error {
	names, err := st.names()
	if err != nil {
		return err
	}
	recorded := map[string]bool{}
	for _, name := range names {
		_, id, _, _ := splitRecordName(name)
		recorded[id] = true
	}
	err = claims.At(c.Host, c.conf.claimsDir).Release(func(h claims.Holder) bool {
		return h == c.holder(h.Sandbox) && !recorded[h.Sandbox]
	})
	if err != nil {
		return fail(codeIO, "I/O failure: claimsDir", "%v", err)
	}
	return nil
}
