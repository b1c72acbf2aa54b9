//go:build ignore

// Command width names the lines of Go files that are wider than 120 columns, a tab being four. It lets
// be what cannot be broken: a text in backquotes or without a blank that takes a third of the line, a
// drawing, and what an example prints.
//
//	git ls-files '*.go' | go run scripts/width.go
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"strings"
	"unicode/utf8"
)

const widest = 120

func width(text []byte) int { return utf8.RuneCount(text) + 3*bytes.Count(text, []byte("\t")) }

func main() {
	wide := 0
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		name := names.Text()
		text, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, line := range tooWide(text) {
			fmt.Printf("%s:%d\n", name, line)
			wide++
		}
	}
	if wide > 0 {
		fmt.Printf("%d lines are wider than %d columns; comments that are wrapped want 100 at most\n", wide, widest)
		os.Exit(1)
	}
}

// tooWide are the numbers of the lines that are.
func tooWide(text []byte) (numbers []int) {
	whole := unbroken(text)
	printed := false // what an example prints
	offset := 0
	for i, line := range bytes.Split(text, []byte("\n")) {
		start, end := offset, offset+len(line)
		offset = end + 1
		code := bytes.TrimLeft(line, "\t")
		comment := bytes.HasPrefix(code, []byte("//"))
		printed = comment && (printed || bytes.Contains(code, []byte("utput:")))
		switch {
		case width(line) <= widest, printed:
		case comment && !bytes.HasPrefix(code, []byte("// ")): // a drawing, or a directive
		case longest(text, whole, start, end) > widest/3:
		default:
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// longest is the width of the longest part of a span from start to end that lies between start and end.
func longest(text []byte, spans [][2]int, start, end int) (most int) {
	for _, span := range spans {
		if from, to := max(span[0], start), min(span[1], end); to > from {
			most = max(most, width(text[from:to]))
		}
	}
	return most
}

// unbroken are the texts that no line break may stand in: those in backquotes, and those without a blank.
func unbroken(text []byte) (spans [][2]int) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		position, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return spans
		case kind == token.STRING && (literal[0] == '`' || !strings.Contains(literal, " ")):
			at := file.Offset(position)
			spans = append(spans, [2]int{at, at + len(literal)})
		}
	}
}
