// SPDX-License-Identifier: Apache-2.0

// @grafana/ui takes the default export of this CommonJS module, which esbuild does not give to .mjs files.
export { Scrollbars as default } from './node_modules/@grafana/ui/node_modules/react-custom-scrollbars-2';
