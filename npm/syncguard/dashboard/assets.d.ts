// `npm run build:ts` makes assets.js of the files in page/.

export const HTML: string, CSS: string, JS: string;
