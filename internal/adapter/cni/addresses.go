// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"encoding/json"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/ipam"
	"github.com/jackfield/jackfield/internal/port/record"
)

// ipamPlugin returns the IPAM plugin of the configuration.
func (c *call) ipamPlugin() *ipam.Plugin {
	return &ipam.Plugin{Conf: c.conf, Path: c.getenv("CNI_PATH"), Environ: c.Environ, Stderr: c.Stderr}
}

// recordedIPAM returns the configuration's IPAM plugin for the record; nil for none.
func (c *call) recordedIPAM() *record.IPAM {
	if c.conf.IPAMType == "" {
		return nil
	}
	i := &record.IPAM{Type: c.conf.IPAMType, Path: c.getenv("CNI_PATH"), Args: c.getenv("CNI_ARGS")}
	if len(c.conf.Text) <= record.MaxIPAMConfig {
		i.Config = json.RawMessage(c.conf.Text)
	}
	return i
}

// allocateAddresses runs ADD of the IPAM plugin. After a failure it runs DEL, so that no address stays allocated.
func (c *call) allocateAddresses(ctx context.Context) (*types100.Result, error) {
	out, err := c.ipamPlugin().Run(ctx, "ADD")
	var result *types100.Result
	if err == nil {
		result, err = c.parseLease(out)
	}
	if err != nil {
		if _, undo := c.ipamPlugin().Run(c.ctx, "DEL"); undo != nil {
			fmt.Fprintf(c.Stderr, "jackfield-cni: undo IPAM: %v\n", undo)
		}
		return nil, err
	}
	return result, nil
}

// parseLease parses the result of the IPAM plugin's ADD, which must have the requested addresses.
func (c *call) parseLease(out []byte) (*types100.Result, error) {
	result, err := parseResultText(out, c.version)
	if err != nil {
		return nil, attach.Fail(codeDecode, "failed to decode the result of IPAM plugin "+c.conf.IPAMType,
			"%s; its standard output is %s",
			diag.Excerpt(decodeProblem(err), diag.MaxExcerpt), diag.QuoteUpTo(string(out), diag.MaxExcerpt))
	}
	if len(result.IPs) == 0 {
		return nil, attach.Fail(codeConfig, "IPAM plugin "+c.conf.IPAMType+" assigned no address",
			"its result has no ips")
	}
	if ip := missingAddress(c.conf.Runtime.IPs, result); ip != "" {
		return nil, c.conf.Unsupported("IPAM plugin "+c.conf.IPAMType+" does not assign "+ip, "runtimeConfig.ips")
	}
	if c.conf.Args.IPs == nil && missingAddress(c.ips, result) != "" {
		return nil, c.environment("CNI_ARGS", "IP must be an address that IPAM plugin "+c.conf.IPAMType+" assigns")
	}
	return result, nil
}
