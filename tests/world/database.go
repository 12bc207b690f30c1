package world

import (
	"database/sql"
	"errors"
	"fmt"
	"os"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"
)

// OpenDatabase opens a state's file for reading only.
func OpenDatabase(path string) (*sql.DB, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return sql.Open("sqlite3", "file:"+path+"?mode=ro&_busy_timeout=10000")
}

// Query gives the rows of a query on this node's state, each column as text,
// NULL as "".
func (w *World) Query(query string, args ...any) ([][]string, error) {
	return QueryFile(w.Database(), query, args...)
}

// QueryFile is Query on the state's file at path.
func QueryFile(path, query string, args ...any) (rows [][]string, err error) {
	db, err := OpenDatabase(path)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	found, err := db.Query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, found.Err(), found.Close()) }()
	names, err := found.Columns()
	if err != nil {
		return nil, err
	}
	for found.Next() {
		cells := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := found.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(names))
		for i, c := range cells {
			row[i] = c.String
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Value is the only column of the only row, "" where there is no row.
func (w *World) Value(query string, args ...any) (string, error) {
	rows, err := w.Query(query, args...)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0][0], nil
}
