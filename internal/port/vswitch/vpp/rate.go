// SPDX-License-Identifier: Apache-2.0

package vpp

import (
	"fmt"
	"math"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// A port's rate is a policer on the interface's input. The policer has the interface's tag as its
// name, which marks it as Jackfield's. VPP does not report where a policer is applied, so each
// change of a port applies it again.

// minBurst is the smallest burst in bytes: two frames of 64 KiB, the largest that an application can send.
const minBurst = 128 << 10

// policerRate returns the rate of a policer in kbit/s, rounded up.
func policerRate(rate uint64) uint64 { return rate/1000 + min(rate%1000, 1) }

// checkRate refuses a rate that exceeds VPP's policers.
func (d *Driver) checkRate(p vswitch.Port) error {
	if policerRate(p.Rate) > math.MaxUint32 {
		return d.Refuse(p, "rate",
			fmt.Sprintf("%d bit/s: a policer of VPP limits to at most %d kbit/s", p.Rate, uint32(math.MaxUint32)),
			"use a lower rate, or leave out rate", errdefs.ErrOutOfRange)
	}
	return nil
}

// missingPolicerMessage returns the name of a policer message that VPP lacks, or "".
func (c *connection) missingPolicerMessage() string {
	for _, e := range []exchange{policerAddDel, policerInput, policerDump} {
		for _, message := range []string{e.request, e.answer} {
			if !c.knowsMessage(message) {
				return message
			}
		}
	}
	return ""
}

// requirePolicer refuses a rate if VPP has no policer plugin.
func (d *Driver) requirePolicer(c *connection, p vswitch.Port) error {
	message := c.missingPolicerMessage()
	if p.Rate == 0 || message == "" {
		return nil
	}
	return d.Refuse(p, "rate", c.missingMessage(message).Error(),
		"load VPP's policer plugin (policer_plugin.so), or leave out rate", errdefs.ErrNotImplemented)
}

// readPolicers reads the rates of policers in kbit/s, by name.
func (c *connection) readPolicers() (map[string]uint32, error) {
	policers := map[string]uint32{}
	if c.missingPolicerMessage() != "" {
		return policers, nil
	}
	err := c.dump(policerDump, policerDumpMessage{}, func(body []byte) error {
		var m policerDetailsMessage
		_, err := decode(body, &m)
		policers[text(m.Name[:])] = m.CIR
		return err
	})
	return policers, err
}

// setRate creates or replaces the interface's policer and applies it. Without a rate it deletes the policer.
func (c *connection) setRate(v *inventory, index uint32, port vswitch.Port) error {
	name, rate := formatTag(port.Owner), uint32(policerRate(port.Rate))
	current, exists := v.policers[name]
	if exists && current != rate {
		if err := c.applyPolicer(name, index, false); err != nil {
			return err
		}
		if err := c.deletePolicer(name); err != nil {
			return err
		}
		exists = false
	}
	if rate == 0 {
		return nil
	}
	if !exists {
		request := policerAddDelMessage{IsAdd: true, CIR: rate, CB: max(port.Rate/8/100, minBurst),
			ConformAction: policerAction{Type: policerTransmit}}
		copy(request.Name[:], name)
		if err := c.call(policerAddDel, new(indexReply), request); err != nil {
			return err
		}
	}
	// A policer that is applied twice counts each packet twice, so detach it first.
	if err := c.applyPolicer(name, index, false); err != nil {
		return err
	}
	return c.applyPolicer(name, index, true)
}

// applyPolicer applies a policer to the packets that an interface receives, or ends that. A missing object is
// then no error.
func (c *connection) applyPolicer(name string, index uint32, apply bool) error {
	request := policerInputMessage{SwIfIndex: index, Apply: apply}
	copy(request.Name[:], name)
	err := c.call(policerInput, new(retvalReply), request)
	if apply {
		return err
	}
	return ignoreMissing(ignoreMissing(err, retvalNoSuchEntry), retvalInvalidInterface)
}

func (c *connection) deletePolicer(name string) error {
	var request policerAddDelMessage
	copy(request.Name[:], name)
	return ignoreMissing(c.call(policerAddDel, new(indexReply), request), retvalNoSuchEntry)
}
