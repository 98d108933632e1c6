// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackfield/jackfield/internal/diag"
)

const database = "Open_vSwitch"

// operation is one operation of a transaction, RFC 7047 section 5.2.
type operation map[string]any

// condition is a column, a function and a value.
type condition [3]any

func where(conditions ...condition) []condition {
	if conditions == nil {
		return []condition{} // all rows
	}
	return conditions
}

func selectRows(table string, columns []string, conditions ...condition) operation {
	return operation{"op": "select", "table": table, "where": where(conditions...), "columns": columns}
}

func mutateRows(table string, mutations [][3]any, conditions ...condition) operation {
	return operation{"op": "mutate", "table": table, "where": where(conditions...), "mutations": mutations}
}

// operationResult is the result of one operation.
type operationResult struct {
	Count   int             `json:"count"`
	Rows    json.RawMessage `json:"rows"`
	UUID    uuid            `json:"uuid"`
	Error   string          `json:"error"`
	Details string          `json:"details"`
}

// databaseError is the error of an operation. The database has not changed.
type databaseError struct {
	Operation string // "commit" for an error of the whole transaction
	Code      string // the name of the error in RFC 7047
	Details   string
}

func (e *databaseError) Error() string {
	text := e.Operation + ": " + e.Code
	if e.Details != "" {
		text += ": " + e.Details
	}
	return diag.Excerpt(text, 400)
}

// isTimeout reports whether the condition that an operation waits for was not met in time.
func isTimeout(err error) bool {
	var refused *databaseError
	return errors.As(err, &refused) && refused.Code == "timed out"
}

// transact makes the operations in one transaction. It returns one result for each.
func (c *connection) transact(operations ...operation) ([]operationResult, error) {
	params := []any{database}
	for _, op := range operations {
		params = append(params, op)
	}
	answer, err := c.call("transact", params)
	if err != nil {
		return nil, err
	}
	return parseResults(operations, answer)
}

func parseResults(operations []operation, answer []byte) ([]operationResult, error) {
	var results []*operationResult // null for an operation after one that failed
	if err := json.Unmarshal(answer, &results); err != nil {
		return nil, fmt.Errorf("the server's answer has an unexpected form: %w", err)
	}
	for i, r := range results {
		if r == nil || r.Error == "" {
			continue
		}
		name := "commit"
		if i < len(operations) {
			name = fmt.Sprint(operations[i]["op"])
			if table := operations[i]["table"]; table != nil {
				name += fmt.Sprint(" ", table)
			}
		}
		return nil, &databaseError{name, r.Error, r.Details}
	}
	if len(results) < len(operations) {
		return nil, fmt.Errorf("the server answered %d of %d operations", len(results), len(operations))
	}
	values := make([]operationResult, len(operations))
	for i := range values {
		if results[i] == nil {
			return nil, fmt.Errorf("the server did not answer operation %d", i)
		}
		values[i] = *results[i]
	}
	return values, nil
}
