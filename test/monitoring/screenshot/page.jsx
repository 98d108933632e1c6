// SPDX-License-Identifier: Apache-2.0

// Draws the panels of the dashboard with Grafana's components. window.fleet has the dashboard and the results of its
// queries. What Grafana's own panels do around the components (default options, frames from Prometheus' results) is
// done here.

import 'uplot/dist/uPlot.min.css';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { firstValueFrom } from 'rxjs';
import {
  applyFieldOverrides, createTheme, dateTime, FieldConfigOptionsRegistry, FieldType, reduceField,
  standardTransformers, standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, GlobalStyles, PanelChrome, Table, TimeSeries } from '@grafana/ui';

const { dashboard, results, from, to } = window.fleet;
const timeZone = 'utc';
const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
const theme = createTheme({ colors: { mode: 'light' } });
const unit = 38, gap = 8, columns = 24, pageWidth = 1600, padding = 16; // Grafana's grid

// The defaults of Grafana's time series panel.
const lines = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', showPoints: 'auto', pointSize: 5,
  spanNulls: false, axisPlacement: 'auto', axisLabel: '', scaleDistribution: { type: 'linear' }, thresholdsStyle: { mode: 'off' },
  hideFrom: { legend: false, tooltip: false, viz: false }, stacking: { mode: 'none', group: 'A' },
};

standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((t) => ({ id: t.id, name: t.name, transformation: async () => t, editor: () => null })));

const legend = (format, labels) => format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');

// table is Prometheus' instant result as Grafana's data source makes it: time, labels, value.
function table(series, refId) {
  const labels = [...new Set(series.flatMap((s) => Object.keys(s.metric)))].sort();
  return toDataFrame({ refId, fields: [
    { name: 'Time', type: FieldType.time, values: series.map((s) => s.value[0] * 1000) },
    ...labels.map((l) => ({ name: l, type: FieldType.string, values: series.map((s) => s.metric[l] ?? '') })),
    { name: 'Value', type: FieldType.number, values: series.map((s) => Number(s.value[1])) },
  ] });
}

function frames(panel) {
  return panel.targets.flatMap((target) => {
    const { series } = results.find((r) => r.panel === panel.id && r.refId === target.refId);
    if (target.format === 'table') {
      return [table(series, target.refId)];
    }
    return series.map((s) => toDataFrame({ refId: target.refId, fields: [
      { name: 'Time', type: FieldType.time, values: s.values.map((v) => v[0] * 1000), config: { interval: 180000 } },
      { name: 'Value', type: FieldType.number, values: s.values.map((v) => Number(v[1])), labels: s.metric,
        config: { displayNameFromDS: legend(target.legendFormat, s.metric) } },
    ] }));
  });
}

async function prepare(panel) {
  let data = frames(panel);
  if (panel.transformations) {
    data = await firstValueFrom(transformDataFrame(panel.transformations, data));
  }
  const { defaults, overrides } = panel.fieldConfig;
  for (const { matcher } of overrides) {
    if (matcher.id !== 'byName') {
      throw new Error(`panel ${panel.title}: no code for overrides by ${matcher.id}`);
    }
  }
  const isGraph = panel.type === 'timeseries';
  const common = { color: { mode: isGraph ? 'palette-classic' : 'thresholds' }, ...defaults, custom: { ...(isGraph ? lines : {}), ...defaults.custom } };
  for (const frame of data) {
    for (const field of frame.fields) {
      field.config = { ...common, ...field.config };
      for (const { properties } of overrides.filter((o) => o.matcher.options === field.config.displayNameFromDS)) {
        for (const { id, value } of properties) {
          field.config[id] = value;
        }
      }
    }
  }
  return applyFieldOverrides({ data, theme, timeZone, replaceVariables: (s) => s, fieldConfigRegistry: new FieldConfigOptionsRegistry(),
    fieldConfig: { defaults: {}, overrides: [] } });
}

function Panel({ panel, data, width, height }) {
  switch (panel.type) {
    case 'timeseries':
      return <TimeSeries frames={data} structureRev={1} width={width} height={height} timeRange={timeRange} timeZone={timeZone}
        legend={{ showLegend: true, calcs: [], ...panel.options.legend }} />;
    case 'table':
      return <Table data={data[0]} width={width} height={height} columnMinWidth={panel.fieldConfig.defaults.custom?.minWidth ?? 150} />;
    case 'stat': {
      const calc = panel.options.reduceOptions.calcs[0];
      return <div style={{ display: 'flex' }}>{data.map(({ fields: [time, field] }) => {
        const value = field.display(reduceField({ field, reducers: [calc] })[calc]);
        const title = data.length > 1 ? field.config.displayNameFromDS : undefined;
        return <BigValue key={field.config.displayNameFromDS} theme={theme} width={width / data.length} height={height} value={{ ...value, title }}
          sparkline={{ y: field, x: time }} colorMode={BigValueColorMode.Value} graphMode={BigValueGraphMode.Area} textMode={BigValueTextMode.Auto} />;
      })}</div>;
    }
    default:
      throw new Error(`no component for panels of type ${panel.type}`);
  }
}

function Page({ panels }) {
  const column = (pageWidth - 2 * padding + gap) / columns;
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: 'relative', margin: padding }}>
        {panels.map(({ panel, data }) => {
          const { x, y, w, h } = panel.gridPos;
          const width = w * column - gap, height = h * unit - gap;
          return (
            <div key={panel.id} style={{ position: 'absolute', left: x * column, top: y * unit, width, height }}>
              <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
                {(innerWidth, innerHeight) => <Panel panel={panel} data={data} width={innerWidth} height={innerHeight} />}
              </PanelChrome>
            </div>
          );
        })}
      </div>
    </ThemeContext.Provider>
  );
}

async function main() {
  await initPluginTranslations('grafana');
  const panels = await Promise.all(dashboard.panels.map(async (panel) => ({ panel, data: await prepare(panel) })));
  document.body.style.background = theme.colors.background.canvas;
  flushSync(() => createRoot(document.getElementById('page')).render(<Page panels={panels} />));
  // The program that takes the picture reads which panels are in it.
  const drawn = document.createElement('script');
  drawn.id = 'drawn';
  drawn.type = 'application/json';
  drawn.textContent = JSON.stringify([...document.querySelectorAll('h2')].map((title) => title.textContent));
  document.body.append(drawn);
}

main().catch((err) => document.body.append(String(err.stack)));
