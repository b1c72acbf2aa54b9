package framework

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

const maxExpression = 4000

func parseExpression(text string) (*syntax.Regexp, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("an expression has more than %d bytes", maxExpression)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("expression %s is not understood", clip(text))
	}
	return tree, nil
}

// holds reports whether what an expression matches may hold a slash, and may be empty.
func holds(expression string) (slash, bare bool, err error) {
	tree, err := parseExpression(expression)
	if err != nil {
		return false, false, err
	}
	compiled, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	if err != nil {
		return false, false, fmt.Errorf("expression %s is not understood", clip(expression))
	}
	return mayHold(tree, '/'), compiled.MatchString(""), nil
}

// mayHold reports whether what an expression matches may hold a letter.
func mayHold(tree *syntax.Regexp, letter rune) bool {
	switch tree.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpLiteral:
		if tree.Flags&syntax.FoldCase != 0 {
			return strings.ContainsFunc(string(tree.Rune), func(c rune) bool {
				return strings.EqualFold(string(c), string(letter))
			})
		}
		return slices.Contains(tree.Rune, letter)
	case syntax.OpCharClass:
		for i := 0; i+1 < len(tree.Rune); i += 2 {
			if tree.Rune[i] <= letter && letter <= tree.Rune[i+1] {
				return true
			}
		}
	}
	return slices.ContainsFunc(tree.Sub, func(sub *syntax.Regexp) bool { return mayHold(sub, letter) })
}

// expression reads a route that is a regular expression, of Django and Express: plain text, groups and classes become
// text and parameters. anchored says that it ends with $ or that something follows.
func expression(text string, fold bool) (parts []part, anchored bool, err error) {
	tree, err := parseExpression(text)
	if err != nil {
		return nil, false, err
	}
	if err := appendExpression(&parts, &anchored, tree, fold); err != nil {
		return nil, false, err
	}
	return parts, anchored, nil
}

func appendExpression(parts *[]part, anchored *bool, tree *syntax.Regexp, fold bool) error {
	if *anchored && tree.Op != syntax.OpEndText && tree.Op != syntax.OpEmptyMatch {
		return errors.New("its expression goes on behind its end")
	}
	switch tree.Op {
	case syntax.OpBeginText:
		if len(*parts) > 0 {
			return errors.New("its expression begins within")
		}
		return nil
	case syntax.OpEndText:
		*anchored = true
		return nil
	case syntax.OpEmptyMatch:
		return nil
	case syntax.OpLiteral:
		if tree.Flags&syntax.FoldCase != 0 && !fold {
			return errors.New("its expression ignores letter case")
		}
		*parts = append(*parts, plain(string(tree.Rune)))
		return nil
	case syntax.OpConcat:
		for _, sub := range tree.Sub {
			if err := appendExpression(parts, anchored, sub, fold); err != nil {
				return err
			}
		}
		return nil
	case syntax.OpQuest:
		var inner []part
		if err := appendExpression(&inner, new(bool), tree.Sub[0], fold); err != nil {
			return err
		}
		if len(inner) > 0 {
			*parts = append(*parts, part{optional: inner})
		}
		return nil
	case syntax.OpCapture:
		if only := tree.Sub[0]; only.Op == syntax.OpLiteral || only.Op == syntax.OpConcat && hasCapture(only) {
			return appendExpression(parts, anchored, only, fold)
		}
		p, err := parameter(tree.Name, written(tree.Sub[0]))
		if err != nil {
			return err
		}
		*parts = append(*parts, p)
		return nil
	case syntax.OpPlus, syntax.OpStar, syntax.OpRepeat, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL,
		syntax.OpAlternate:
		p, err := parameter("", written(tree))
		if err != nil {
			return err
		}
		*parts = append(*parts, p)
		return nil
	}
	return fmt.Errorf("its expression holds %s, which is not understood", clip(tree.String()))
}

func hasCapture(tree *syntax.Regexp) bool {
	return tree.Op == syntax.OpCapture || slices.ContainsFunc(tree.Sub, hasCapture)
}

// written is an expression as text, where what takes everything is written as parameter knows it.
func written(tree *syntax.Regexp) string {
	if len(tree.Sub) == 1 && (tree.Sub[0].Op == syntax.OpAnyChar || tree.Sub[0].Op == syntax.OpAnyCharNotNL) {
		switch tree.Op {
		case syntax.OpStar:
			return ".*"
		case syntax.OpPlus:
			return ".+"
		}
	}
	return tree.String()
}
