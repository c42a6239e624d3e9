/** The comments on the public API, as an editor shows them to users, and the examples in them. */

import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import ts from "typescript";
import { type Block, blocksOf } from "./documents.js";
import { root } from "./installed.js";

/** Something that users see in an editor. */
export type Shown = {
  /** With what it is a member of: `LockConfig.key`. */
  name: string;
  /** What its comment says, tags apart; that of what it overrides if it has none. */
  comment: string;
  hasExample: boolean;
  /** The file, and the line in it. */
  place: string;
};

const FOLDER = "npm/syncguard";

/** What users call methods of. Other members that are functions are theirs, such as `onReleaseError`. */
const CALLED = [
  "SyncGuardBackend",
  "HeldLock",
  "LockHandle",
  "TestClock",
  "TestFaults",
  "AtomicLock",
];

const config = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(root, "tsconfig.json"), (path) => ts.sys.readFile(path)).config,
  ts.sys,
  root,
);
const program = ts.createProgram(config.fileNames, config.options);
const checker = program.getTypeChecker();
const sources = program
  .getSourceFiles()
  .filter(({ fileName }) => relative(root, fileName).startsWith(`${FOLDER}/`));

/** What each entry point of package.json exports: once, if several do. */
const exported = new Set(
  entryPoints().flatMap((source) => {
    const module = checker.getSymbolAtLocation(source);
    return module === undefined ? [] : checker.getExportsOfModule(module).map(resolve);
  }),
);

function entryPoints(): ts.SourceFile[] {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    exports: Record<string, unknown>;
  };
  return Object.keys(manifest.exports)
    .filter((name) => !name.endsWith(".json"))
    .map((name) => join(root, FOLDER, `${name === "." ? "index" : name}.ts`))
    .map((path) => sources.find(({ fileName }) => fileName === path) ?? missing(path));
}

function missing(path: string): never {
  throw new Error(`${path} is the source of an entry point, and is not there`);
}

function resolve(symbol: ts.Symbol): ts.Symbol {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

/** Every export of an entry point, the types that it is made of, and their members at any depth. */
export function everythingShown(): Shown[] {
  const shown = new Map<ts.Node, Shown>();
  const seen = new Set<ts.Symbol>();

  const follow = (symbol: ts.Symbol | undefined): void => {
    if (symbol === undefined || seen.has(resolve(symbol))) return;
    const { name, declarations = [] } = resolve(symbol);
    seen.add(resolve(symbol));
    for (const each of declarations) {
      if (isOurs(each) && !ts.isTypeParameterDeclaration(each)) visit(each, name);
    }
  };
  const visit = (node: ts.Node, name: string): void => {
    if (isHidden(node)) return;
    // Names of types are what is left to find in a heritage clause, and nothing in other expressions.
    if (ts.isExpressionWithTypeArguments(node))
      follow(checker.getSymbolAtLocation(node.expression));
    else if (ts.isTypeReferenceNode(node)) follow(checker.getSymbolAtLocation(node.typeName));
    else if (ts.isBlock(node) || ts.isExpression(node)) return;
    const isMember = ts.isTypeElement(node) || ts.isClassElement(node);
    const path = isMember ? `${name}.${node.name?.getText() ?? "new"}` : name;
    if (isMember || isDeclaration(node)) shown.set(node, describe(node, path));
    ts.forEachChild(node, (child) => {
      if (!isPattern(child)) visit(child, path);
    });
  };
  for (const each of exported) follow(each);
  return [...shown.values()];
}

/** Every function that an entry point exports, each of its overloads, and every class. */
export function functions(): Shown[] {
  return [...exported].flatMap(({ name, declarations = [] }) =>
    declarations
      .filter((each) => ts.isFunctionDeclaration(each) || ts.isClassDeclaration(each))
      .filter((each) => !isHidden(each))
      .map((each) => describe(each, name)),
  );
}

/** The methods of what users get from those. */
export function methods(): Shown[] {
  return CALLED.flatMap((name) => {
    const type = [...exported].find((each) => each.name === name);
    // An alias of a class that is not exported has another name.
    const members = checker.getPropertiesOfType(
      checker.getDeclaredTypeOfSymbol(type ?? absent(name)),
    );
    return members.flatMap((member) => {
      const [node] = member.declarations ?? [];
      if (node === undefined || !isOurs(node) || isHidden(node)) return [];
      if (checker.getTypeOfSymbol(member).getCallSignatures().length === 0) return [];
      const memberName = ts.getNameOfDeclaration(node)?.getText() ?? member.name;
      return [describe(node, `${name}.${memberName}`)];
    });
  });
}

function absent(name: string): never {
  throw new Error(`${name} is not exported`);
}

/** The blocks of code in every `@example`. */
export function examples(): Block[] {
  return sources.flatMap((source) => {
    const tags = new Set<ts.JSDocTag>();
    const visit = (node: ts.Node): void => {
      for (const comment of ts.getJSDocCommentsAndTags(node)) {
        if (ts.isJSDoc(comment)) for (const tag of comment.tags ?? []) tags.add(tag);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
    return [...tags]
      .filter(({ tagName }) => tagName.text === "example")
      .map((tag) => {
        const place = placeOf(tag);
        const text = ts.getTextOfJSDocComment(tag.comment) ?? "";
        const [block, ...others] = blocksOf(place, `${text.trim()}\n`);
        const isAll = block !== undefined && others.length === 0 && text.startsWith("```");
        // What is no block of code is one without a language, which the test refuses.
        return isAll
          ? { ...block, place }
          : { language: "", mark: "", given: "", then: "", code: text, place };
      });
  });
}

function describe(node: ts.Node, name: string): Shown {
  const { comment, tags } = commentOn(node);
  const hasExample = tags.some((tag) => tag.name === "example");
  return {
    name,
    comment: ts.displayPartsToString(comment).trim(),
    hasExample,
    place: placeOf(node),
  };
}

type Comment = { comment: ts.SymbolDisplayPart[]; tags: ts.JSDocTagInfo[] };

function commentOn(node: ts.Node): Comment {
  if (ts.isFunctionLike(node)) {
    // Overloads have a comment each.
    const signature = checker.getSignatureFromDeclaration(node);
    return {
      comment: signature?.getDocumentationComment(checker) ?? [],
      tags: signature?.getJsDocTags() ?? [],
    };
  }
  const named = ts.getNameOfDeclaration(node as ts.Declaration) ?? node;
  const symbol = propertyOfIntersection(node) ?? checker.getSymbolAtLocation(named);
  return {
    comment: symbol?.getDocumentationComment(checker) ?? [],
    tags: symbol?.getJsDocTags(checker) ?? [],
  };
}

/** A member of `A & { … }` that `A` has, too, is shown with the comments of both. */
function propertyOfIntersection(node: ts.Node): ts.Symbol | undefined {
  const whole = node.parent.parent;
  if (!ts.isPropertySignature(node) || !ts.isIntersectionTypeNode(whole)) return undefined;
  return checker.getPropertyOfType(checker.getTypeFromTypeNode(whole), node.name.getText());
}

function isDeclaration(node: ts.Node): boolean {
  return (
    ts.isFunctionDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isInterfaceDeclaration(node) ||
    ts.isTypeAliasDeclaration(node) ||
    ts.isVariableDeclaration(node)
  );
}

/** What a type is only compared with: that of `Extract<…, { ok: false }>`. */
function isPattern(node: ts.Node): boolean {
  const { parent } = node;
  if (!ts.isTypeReferenceNode(parent)) return false;
  const compares = ["Extract", "Exclude"].includes(parent.typeName.getText());
  return compares && node === parent.typeArguments?.[1];
}

/** What the declarations leave out: `@internal`, private members, and the implementation of overloads. */
function isHidden(node: ts.Node): boolean {
  if (ts.getJSDocTags(node).some(({ tagName }) => tagName.text === "internal")) return true;
  if (ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node)) {
    if (checker.isImplementationOfOverload(node) === true) return true;
  }
  if (!ts.isClassElement(node)) return false;
  const isPrivate = ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Private;
  return isPrivate !== 0 || (node.name !== undefined && ts.isPrivateIdentifier(node.name));
}

function isOurs(node: ts.Node): boolean {
  return sources.includes(node.getSourceFile());
}

function placeOf(node: ts.Node): string {
  const source = node.getSourceFile();
  const { line } = source.getLineAndCharacterOfPosition(node.getStart());
  return `${relative(root, source.fileName)}:${line + 1}`;
}
